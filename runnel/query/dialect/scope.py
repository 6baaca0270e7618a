"""Which names mean what at a place in a query."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from runnel.query.dialect.typed_expression import Refused, Value, field_of


@dataclass(frozen=True)
class Relation:
    """Something in FROM: its qualifier as typed by the user (`()` if it has none), and its columns in order."""

    qualifier: tuple[str, ...]
    columns: tuple[Value, ...]

    def answers_to(self, qualifier: tuple[str, ...]) -> bool:
        """Tell whether `qualifier`, in lower case, means this relation: `t`, or `layer.t`."""
        return bool(qualifier) and self.qualifier[-len(qualifier) :] == qualifier


@dataclass
class Border:
    """The edge of a subquery: what a name inside of it means outside is noted here.

    `place` is the place in the subquery that is being translated, as numbers that sort as Spark visits its plan.
    """

    place: list[int]
    references: list[tuple[tuple[int, ...], Value]] = field(default_factory=list)

    def cross(self, column: Value) -> None:
        """Note a column of the query around; refuses those that Spark does not let through."""
        if column.type.kind == "map":
            raise Refused("a map of the query around")
        self.references.append((tuple(self.place), column))

    def names(self) -> tuple[str | None, ...] | None:
        """Return the names of the columns that were noted, in Spark's order, or None if that is not known."""
        names = tuple(column.name for _, column in sorted(self.references, key=lambda reference: reference[0]))
        # Of several joins, Spark visits the conditions before the tables.
        unsure = any(place and place[-1] == IN_FROM for place, _ in self.references)
        return None if unsure and len(set(names)) > 1 else names


IN_ORDER, IN_HAVING, IN_LIST, IN_WHERE, IN_FROM = range(5)
"""The parts of a SELECT in the order in which Spark visits them."""


@dataclass
class Scope:
    """The names that can be seen at one level of a query; `outer` is the level around it.

    `merged` are the columns that a join with USING made one of. `outputs` are the columns of the SELECT list by name,
    for WHERE-less places that may name them; `prefer_outputs` for those where they win over columns of FROM, except in
    HAVING (`strict_outputs`). `border` is set on the empty level between a subquery and the query around it,
    `joining` where an ON stands. `lateral` gathers the entries of the SELECT list that other places named.
    """

    outer: "Scope | None" = None
    relations: list[Relation] = field(default_factory=list)
    merged: dict[str, Value] = field(default_factory=dict)
    outputs: dict[str, Value | None] = field(default_factory=dict)
    prefer_outputs: bool = False
    inside_aggregate: bool = False
    variables: dict[str, Value] = field(default_factory=dict)
    windows: dict[str, object] = field(default_factory=dict)
    keys: dict[str, Value] = field(default_factory=dict)
    strict_outputs: bool = False
    grouping_sets: bool = False
    joining: bool = False
    border: Border | None = None
    lateral: list[str] = field(default_factory=list)

    def column(self, parts: tuple[str, ...], *, bare: bool) -> Value:
        """Return what a name of several parts means, struct fields included."""
        scope: Scope | None = self
        borders: list[Border] = []
        inside_aggregate = False
        while scope is not None:
            found = scope._here(parts, bare)
            if found is not None:
                if len(borders) > 1 or (borders and inside_aggregate):
                    raise Refused(f"the column `{'.'.join(parts)}` of another query in this place")
                for border in borders:
                    border.cross(found)
                return found
            if scope.border is not None:
                borders.append(scope.border)
            inside_aggregate = inside_aggregate or (not borders and scope.inside_aggregate)
            scope = scope.outer
        raise Refused(f"the column `{'.'.join(parts)}` is not known")

    def _here(self, parts: tuple[str, ...], bare: bool) -> Value | None:
        lowered = tuple(part.lower() for part in parts)
        if len(parts) == 1 and self.prefer_outputs and lowered[0] in self.outputs:
            return self._output(lowered[0], parts[0])
        for qualifiers in range(min(2, len(parts) - 1), -1, -1):
            found = self._named(lowered[:qualifiers], lowered[qualifiers])
            if found is not None:
                if qualifiers or lowered[0] not in self.variables:
                    found = found.named(parts[qualifiers])
                rest = parts[qualifiers + 1 :]
                for index, name in enumerate(rest):
                    found = field_of(found, name, bare=bare and index == len(rest) - 1)
                return found
        if len(parts) == 1 and lowered[0] in self.outputs:
            found = self._output(lowered[0], parts[0])
            self.lateral.append(lowered[0])
            return found if bare else found.named(f"lateralAliasReference({parts[0]})")
        return None

    def _output(self, name: str, typed: str) -> Value:
        found = self.outputs[name]
        if found is None:
            raise Refused(f"`{typed}` names several columns")
        if self.inside_aggregate or self.strict_outputs:
            below = self._named((), name)
            if (below is None and self.inside_aggregate) or (below is not None and below.sql != found.sql):
                raise Refused(f"`{typed}` names a column and an alias")
        return found.named(typed)

    def _named(self, qualifier: tuple[str, ...], name: str) -> Value | None:
        if not qualifier:
            if name in self.variables:
                return self.variables[name]
            if name in self.merged:
                return self.merged[name]
        found = [
            column
            for relation in self.relations
            if not qualifier or relation.answers_to(qualifier)
            for column in relation.columns
            if column.name is not None and column.name.lower() == name
        ]
        if len(found) > 1:
            raise Refused(f"`{name}` names several columns")
        return found[0] if found else None

    def star(self, qualifier: tuple[str, ...] = ()) -> Iterator[Value]:
        """Yield the columns that `*` or `t.*` stands for."""
        chosen = [r for r in self.relations if not qualifier or r.answers_to(qualifier)]
        if not chosen:
            raise Refused("a star that means no table")
        if not qualifier:
            yield from self.merged.values()
        for relation in chosen:
            for column in relation.columns:
                if qualifier or column.name is None or column.name.lower() not in self.merged:
                    yield column
