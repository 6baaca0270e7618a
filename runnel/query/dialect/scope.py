"""Resolve names at a position in a query."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, extract_field


@dataclass(frozen=True)
class Relation:
    """A relation in FROM: its qualifier as typed by the user (`()` if it has none), and its columns in order."""

    qualifier: tuple[str, ...]
    columns: tuple[TypedExpression, ...]

    def matches_qualifier(self, qualifier: tuple[str, ...]) -> bool:
        """Return whether `qualifier`, in lower case, refers to this relation: `t`, or `layer.t`."""
        return bool(qualifier) and self.qualifier[-len(qualifier) :] == qualifier


@dataclass
class SubqueryBoundary:
    """The boundary of a subquery, which collects the references to columns of the outer query.

    `position` is the part of the subquery being translated, as numbers that sort in the order in which Spark visits
    its plan.
    """

    position: list[int]
    references: list[tuple[tuple[int, ...], TypedExpression]] = field(default_factory=list)

    def add_reference(self, column: TypedExpression) -> None:
        """Add a reference to a column of the outer query; refuse types that Spark does not allow there."""
        if column.type.kind == "map":
            raise Untranslatable("a map of the outer query")
        self.references.append((tuple(self.position), column))

    def reference_names(self) -> tuple[str | None, ...] | None:
        """Return the names of the referenced columns, in Spark's order, or None if that is not known."""
        names = tuple(column.name for _, column in sorted(self.references, key=lambda reference: reference[0]))
        # Of several joins, Spark visits the conditions before the tables.
        is_uncertain = any(position and position[-1] == IN_FROM for position, _ in self.references)
        return None if is_uncertain and len(set(names)) > 1 else names


IN_ORDER, IN_HAVING, IN_LIST, IN_WHERE, IN_FROM = range(5)
"""The parts of a SELECT in the order in which Spark visits them."""


@dataclass
class QueryScope:
    """The names that are visible at one level of a query; `outer` is the level around it.

    `using_columns` are the columns that a join with USING merged. `outputs` are the columns of the SELECT list by
    name, for clauses that may use them; with `prefer_outputs` they win over columns of FROM, except in HAVING
    (`strict_outputs`). `boundary` is set on the empty level between a subquery and its outer query, `joining` in an ON
    condition. `lateral_aliases` collects the entries of the SELECT list that other expressions used.
    """

    outer: "QueryScope | None" = None
    relations: list[Relation] = field(default_factory=list)
    using_columns: dict[str, TypedExpression] = field(default_factory=dict)
    outputs: dict[str, TypedExpression | None] = field(default_factory=dict)
    prefer_outputs: bool = False
    inside_aggregate: bool = False
    variables: dict[str, TypedExpression] = field(default_factory=dict)
    windows: dict[str, object] = field(default_factory=dict)
    keys: dict[str, TypedExpression] = field(default_factory=dict)
    strict_outputs: bool = False
    grouping_sets: bool = False
    joining: bool = False
    boundary: SubqueryBoundary | None = None
    lateral_aliases: list[str] = field(default_factory=list)

    def resolve_column(self, parts: tuple[str, ...], *, bare: bool) -> TypedExpression:
        """Resolve a name of several parts, struct fields included."""
        scope: QueryScope | None = self
        boundaries: list[SubqueryBoundary] = []
        inside_aggregate = False
        while scope is not None:
            resolved = scope._resolve_locally(parts, bare)
            if resolved is not None:
                if len(boundaries) > 1 or (boundaries and inside_aggregate):
                    raise Untranslatable(f"the column `{'.'.join(parts)}` of another query in this place")
                for boundary in boundaries:
                    boundary.add_reference(resolved)
                return resolved
            if scope.boundary is not None:
                boundaries.append(scope.boundary)
            inside_aggregate = inside_aggregate or (not boundaries and scope.inside_aggregate)
            scope = scope.outer
        raise Untranslatable(f"the column `{'.'.join(parts)}` is not known")

    def _resolve_locally(self, parts: tuple[str, ...], bare: bool) -> TypedExpression | None:
        lowered = tuple(part.lower() for part in parts)
        if len(parts) == 1 and self.prefer_outputs and lowered[0] in self.outputs:
            return self._resolve_output(lowered[0], parts[0])
        for qualifier_length in range(min(2, len(parts) - 1), -1, -1):
            resolved = self._find_column(lowered[:qualifier_length], lowered[qualifier_length])
            if resolved is not None:
                if qualifier_length or lowered[0] not in self.variables:
                    resolved = resolved.with_name(parts[qualifier_length])
                field_names = parts[qualifier_length + 1 :]
                for index, name in enumerate(field_names):
                    resolved = extract_field(resolved, name, bare=bare and index == len(field_names) - 1)
                return resolved
        if len(parts) == 1 and lowered[0] in self.outputs:
            resolved = self._resolve_output(lowered[0], parts[0])
            self.lateral_aliases.append(lowered[0])
            return resolved if bare else resolved.with_name(f"lateralAliasReference({parts[0]})")
        return None

    def _resolve_output(self, name: str, written_name: str) -> TypedExpression:
        output = self.outputs[name]
        if output is None:
            raise Untranslatable(f"`{written_name}` names several columns")
        if self.inside_aggregate or self.strict_outputs:
            source_column = self._find_column((), name)
            if (source_column is None and self.inside_aggregate) or (
                source_column is not None and source_column.sql != output.sql
            ):
                raise Untranslatable(f"`{written_name}` names a column and an alias")
        return output.with_name(written_name)

    def _find_column(self, qualifier: tuple[str, ...], name: str) -> TypedExpression | None:
        if not qualifier:
            if name in self.variables:
                return self.variables[name]
            if name in self.using_columns:
                return self.using_columns[name]
        matches = [
            column
            for relation in self.relations
            if not qualifier or relation.matches_qualifier(qualifier)
            for column in relation.columns
            if column.name is not None and column.name.lower() == name
        ]
        if len(matches) > 1:
            raise Untranslatable(f"`{name}` names several columns")
        return matches[0] if matches else None

    def expand_star(self, qualifier: tuple[str, ...] = ()) -> Iterator[TypedExpression]:
        """Yield the columns that `*` or `t.*` stands for."""
        chosen_relations = [r for r in self.relations if not qualifier or r.matches_qualifier(qualifier)]
        if not chosen_relations:
            raise Untranslatable("a star that refers to no table")
        if not qualifier:
            yield from self.using_columns.values()
        for relation in chosen_relations:
            for column in relation.columns:
                if qualifier or column.name is None or column.name.lower() not in self.using_columns:
                    yield column
