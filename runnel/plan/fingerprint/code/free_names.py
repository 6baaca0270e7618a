"""Find the free names of a syntax tree, which it takes from outside. Pure: looks up no values."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class NameUse(NamedTuple):
    """A use of a name, with the attributes accessed on it: `helpers.clean` is ("helpers", "clean").

    `is_called` is true if it is only ever called; a function that is passed on as a value may be inspected.
    """

    chain: tuple[str, ...]
    is_called: bool
    line: int


class ImportedName(NamedTuple):
    """A name that an import statement within a function binds, with the attributes accessed on it."""

    level: int
    module: str
    chain: tuple[str, ...]
    line: int


@dataclass
class NameScope:
    """The names of one function, class or comprehension. Uses are resolved after the whole block was read."""

    kind: Literal["function", "class", "comprehension"]
    parent: "NameScope | None" = None
    bound: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)  # declared global
    nonlocals: set[str] = field(default_factory=set)
    imports: dict[str, ImportedName] = field(default_factory=dict)
    uses: list[NameUse] = field(default_factory=list)
    inner_uses: list[NameUse] = field(
        default_factory=list
    )  # uses in nested scopes, which don't see the names of a class

    def bind(self, name: str) -> None:
        """Record that `name` is assigned in this scope."""
        self.bound.add(name)

    def bind_walrus(self, name: str) -> None:
        """Record an assignment expression; inside a comprehension it binds the name in the enclosing scope."""
        scope = self
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        scope.bound.add(name)


def find_free_names(scopes: Iterable[NameScope]) -> tuple[tuple[NameUse, ...], tuple[ImportedName, ...]]:
    """Return the names that the outermost scope takes from outside, and the names of local imports.

    `scopes` are in order of creation, so a scope comes after its parent. The order of the result does not depend on
    formatting.
    """
    free_uses: list[NameUse] = []
    imports: list[ImportedName] = []
    for scope in reversed(list(scopes)):
        outer_uses = free_uses if scope.parent is None else scope.parent.inner_uses
        for name_use in scope.uses:
            _resolve_use(scope, name_use, outer_uses, free_uses, imports)
        for name_use in scope.inner_uses:  # functions within a class don't see its names
            if scope.kind == "class":
                outer_uses.append(name_use)
            else:
                _resolve_use(scope, name_use, outer_uses, free_uses, imports)
    unique_imports = {imported_name[:3]: imported_name for imported_name in sorted(imports, reverse=True)}
    return _merge_uses(free_uses), tuple(unique_imports[key] for key in sorted(unique_imports))


def _resolve_use(
    scope: NameScope,
    name_use: NameUse,
    outer_uses: list[NameUse],
    free_uses: list[NameUse],
    imports: list[ImportedName],
) -> None:
    base = name_use.chain[0]
    if base in scope.globals:
        free_uses.append(name_use)
    elif base in scope.imports:
        imported_name = scope.imports[base]
        imports.append(imported_name._replace(chain=imported_name.chain + name_use.chain[1:], line=name_use.line))
    # A class may read an outer name before it binds its own, as in `rate = rate`.
    elif base not in scope.bound or base in scope.nonlocals or scope.kind == "class":
        outer_uses.append(name_use)


def _merge_uses(uses: Iterable[NameUse]) -> tuple[NameUse, ...]:
    merged: dict[tuple[str, ...], NameUse] = {}
    for name_use in uses:
        previous = merged.get(name_use.chain, name_use)
        merged[name_use.chain] = NameUse(
            name_use.chain, previous.is_called and name_use.is_called, min(previous.line, name_use.line)
        )
    return tuple(merged[chain] for chain in sorted(merged))
