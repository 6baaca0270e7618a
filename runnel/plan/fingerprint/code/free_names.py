"""Which names a piece of syntax takes from outside itself. Pure: no value is looked up here."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Load(NamedTuple):
    """A name that is used, with the attributes read off it: `helpers.clean` is ("helpers", "clean").

    `is_called` where it is only ever called; a function that is handed on as a value may be looked at from outside.
    """

    chain: tuple[str, ...]
    is_called: bool
    line: int


class Import(NamedTuple):
    """Something that an import statement within a function binds, with the attributes then read off it."""

    level: int
    module: str
    chain: tuple[str, ...]
    line: int


@dataclass
class Scope:
    """The names of one function, class or comprehension. Loads are settled when the whole block has been seen."""

    kind: Literal["function", "class", "comprehension"]
    parent: "Scope | None" = None
    bound: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)  # declared global
    nonlocals: set[str] = field(default_factory=set)
    imports: dict[str, Import] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    passed: list[Load] = field(default_factory=list)  # from scopes within, past the names of a class

    def bind(self, name: str) -> None:
        """Note that `name` is assigned here."""
        self.bound.add(name)

    def bind_walrus(self, name: str) -> None:
        """Note an assignment expression: within a comprehension it binds outside of it."""
        scope = self
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        scope.bound.add(name)


def free(scopes: Iterable[Scope]) -> tuple[tuple[Load, ...], tuple[Import, ...]]:
    """Return what the outermost scope needs from outside, and what local imports bring.

    `scopes` come in the order of their making, so a scope comes after the one it is in. The order of the answer
    doesn't depend on formatting.
    """
    loads: list[Load] = []
    imports: list[Import] = []
    for scope in reversed(list(scopes)):
        outside = loads if scope.parent is None else scope.parent.passed
        for load in scope.loads:
            _settle(scope, load, outside, loads, imports)
        for load in scope.passed:  # functions within a class don't see its names
            if scope.kind == "class":
                outside.append(load)
            else:
                _settle(scope, load, outside, loads, imports)
    brought = {found[:3]: found for found in sorted(imports, reverse=True)}
    return _merged(loads), tuple(brought[key] for key in sorted(brought))


def _settle(scope: Scope, load: Load, outside: list[Load], loads: list[Load], imports: list[Import]) -> None:
    base = load.chain[0]
    if base in scope.globals:
        loads.append(load)
    elif base in scope.imports:
        found = scope.imports[base]
        imports.append(found._replace(chain=found.chain + load.chain[1:], line=load.line))
    # A class may read a name from outside before it binds its own, as in `rate = rate`.
    elif base not in scope.bound or base in scope.nonlocals or scope.kind == "class":
        outside.append(load)


def _merged(loads: Iterable[Load]) -> tuple[Load, ...]:
    merged: dict[tuple[str, ...], Load] = {}
    for load in loads:
        known = merged.get(load.chain, load)
        merged[load.chain] = Load(load.chain, known.is_called and load.is_called, min(known.line, load.line))
    return tuple(merged[chain] for chain in sorted(merged))
