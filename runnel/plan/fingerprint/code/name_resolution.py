"""What the names that a function uses stand for: values, functions, modules, or something that can't be followed.

Looks names up in globals and closures; calls nothing of the user's but what turns a value into text.
"""

import ast
import builtins
import importlib
import sys
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from runnel.declare.model.source_location import Place
from runnel.plan.fingerprint.code.free_names import Import, Load
from runnel.plan.fingerprint.code.reference_collector import Gathering
from runnel.plan.fingerprint.project_files import NOTEBOOK

if TYPE_CHECKING:
    from runnel.plan.fingerprint.code.code_walker import Reach

_MISSING = object()
_UNSEEN: dict[object, str] = {
    builtins.eval: "eval",
    builtins.exec: "exec",
    builtins.globals: "globals()",
    builtins.__import__: "__import__",
    importlib.import_module: "importlib.import_module",
}
_OF_MODULE = {"__name__", "__package__", "__spec__", "__loader__", "__builtins__", "__doc__", "__cached__"}


class Names:
    """The names of one function or file, with where to look them up."""

    def __init__(
        self, reach: "Reach", file: str, globals_: Mapping[str, Any], closure: Mapping[str, Any], owner: str, line: int
    ) -> None:
        self.reach = reach
        self.project = reach.project
        self.file = file
        self.globals = globals_
        self.closure = closure
        self.owner = owner
        self.line = line
        self.gathering = Gathering()

    def follow(self, loads: Iterable[Load], imports: Iterable[Import]) -> None:
        """Follow every name."""
        for load in loads:
            self.add_load(load)
        for found in imports:
            self.add_import(found)

    def add_load(self, load: Load) -> None:
        """Follow one name and the attributes read off it."""
        base, *rest = load.chain
        if base in self.closure:
            return self.add_chain(base, self.closure[base], rest, load, "value")
        if base in _OF_MODULE:
            return None
        if base == "__file__":
            return self.gathering.say(f"file {self.file}")
        value = self.globals.get(base, _MISSING)
        if value is not _MISSING:
            return self.add_chain(base, value, rest, load, "constant")
        known = getattr(builtins, base, _MISSING)
        unseen = _unseen(known)
        if unseen:
            return self.add_file(self.file, f"{unseen} at {self.file}:{load.line}")
        return self.gathering.say(f"{base} builtin" if known is not _MISSING else f"{base} missing")

    def add_chain(self, name: str, value: object, rest: list[str], load: Load, kind: str) -> None:
        """Follow attributes through modules, then what they lead to."""
        home = self.file
        while isinstance(value, ModuleType):
            file = self.project.module_file(value)
            if file is None and not self.project.is_package(value):
                return self.add_installed(value, rest, load)
            if not rest:
                return self.add_module(value, file, name, load)
            name, *rest = rest
            home = file or home
            if name not in vars(value):
                return (
                    self.gathering.say(f"{name} missing") if file is None else self.add_module(value, file, name, load)
                )
            value, kind = vars(value)[name], "constant"
        return self.add_value(name, value, home=home, load=load, rest=rest, kind=kind)

    def add_installed(self, module: ModuleType, rest: list[str], load: Load) -> None:
        """Note something of a package by name."""
        found = getattr(module, rest[0], None) if rest and module.__name__ in ("importlib", "builtins", "sys") else None
        unseen = "sys.modules" if found is sys.modules else _unseen(found)
        if unseen:
            return self.add_file(self.file, f"{unseen} at {self.file}:{load.line}")
        return self.gathering.say(".".join([module.__name__, *rest]))

    def add_module(self, module: ModuleType, file: str | None, name: str, load: Load) -> None:
        """Note a module of the project that is used as a value: anything may be read off it."""
        if file is not None:
            self.gathering.refer("file", self.reach.file(file, vars(module)))
            self.gathering.warn(f"{file} counts as a whole: `{name}` is used as a value at {self.file}:{load.line}")

    def add_file(self, file: str, why: str) -> None:
        """Note a whole file, because of `why`."""
        if file == NOTEBOOK:
            self.gathering.warn(f"not followed: {why}")
            return
        around = self.globals if file == self.file else None
        self.gathering.refer("file", self.reach.file(file, around))
        self.gathering.warn(f"{file} counts as a whole: {why}")

    def add_value(
        self,
        name: str,
        value: object,
        *,
        home: str = "",
        load: Load | None = None,
        rest: Iterable[str] = (),
        kind: str = "constant",
        lenient: bool = False,
    ) -> None:
        """Note what a name stands for: a piece of code, or a value."""
        line = load.line if load else self.line
        unseen = _unseen(value)
        if unseen and not lenient:
            return self.add_file(self.file, f"{unseen} at {self.file}:{line}")
        if isinstance(value, FunctionType | type):
            unit = self.reach.unit_of(value)
            if unit is not None:
                read = "" if load is None or load.is_called else unit.annotations
                self.gathering.refer(f"{name} code {read}", unit)
                for attribute in rest:
                    if attribute in vars(value) and isinstance(value, FunctionType):
                        self.add_value(f"{name}.{attribute}", vars(value)[attribute], home=home, load=load)
                return None
        unit = self.reach.value(value, lenient=lenient)
        place = self.place(home or self.file, name, line) if kind == "constant" else Place(self.file, self.line)
        self.gathering.hold(name, unit, kind, self.full_name(kind, name, place), place)
        for what in unit.unknown:
            self.add_file(place.file, f"`{name}` is a {what} at {place}")
        if type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark."):
            self.add_maker(place, name)
        return None

    def add_maker(self, place: Place, name: str) -> None:
        """Follow the statement that made an expression of Spark's: its text doesn't tell the functions in it."""
        source = self.reach.source(self.project.path(place.file))
        node = source.binding(name) if source is not None else None
        if source is None or not isinstance(node, ast.Assign | ast.AnnAssign) or place in self.gathering.makers:
            return
        self.gathering.makers.add(place)
        if place.file == self.file:
            self.follow((load for load in source.code_of(node).loads if load.chain[0] != name), ())
        else:
            self.gathering.refer("file", self.reach.file(place.file, None))

    def add_import(self, found: Import) -> None:
        """Follow what an import statement within a function brings: a whole file.

        Whether the module is imported already must not matter: running the function once imports it.
        """
        file = self.imported_file(found)
        if file is not None:
            return self.add_file(file, f"imported within a function at {self.file}:{found.line}")
        name = ".".join([found.module, *found.chain])
        if name == "importlib.import_module":
            return self.add_file(self.file, f"{name} at {self.file}:{found.line}")
        return self.gathering.say(name)

    def imported_file(self, found: Import) -> str | None:
        """Return the file of the project that an import names: the innermost module."""
        names = [name for name in found.module.split(".") if name] + list(found.chain)
        for count in range(len(names), 0, -1):
            file = self.project.find(".".join(names[:count]), found.level, self.file)
            if file is not None:
                return file
        return None

    def add_defaults(self, function: FunctionType, given: frozenset[str]) -> None:
        """Note the values of defaults that are in force."""
        code = function.__code__
        defaults = function.__defaults__ or ()
        positional = code.co_varnames[: code.co_argcount]
        named = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
        named.update(function.__kwdefaults__ or {})
        for name, value in named.items():
            if name not in given:
                self.add_value(name, value, kind="default")

    def is_runnel(self, chain: tuple[str, ...]) -> bool:
        """Tell whether a decorator is one of ours: what it says is in the task itself."""
        if not chain or chain[0] not in self.globals:
            return chain[-1:] == ("task",)  # imported within a template
        value = self.globals[chain[0]]
        for name in chain[1:]:
            value = getattr(value, name, None) if isinstance(value, ModuleType) else None
        return str(getattr(value, "__module__", "")).partition(".")[0] == "runnel"

    def full_name(self, kind: str, name: str, place: Place) -> str:
        """Return the name that tells a value apart from others of its name."""
        return f"{place.file}:{name}" if kind == "constant" else f"{self.file}:{self.owner}:{name}"

    def place(self, file: str, name: str, line: int) -> Place:
        """Return where a name of a file gets its value, going through imports."""
        for _ in range(20):
            source = self.reach.source(self.project.path(file))
            found = source.binding(name.partition(".")[0]) if source is not None else None
            if not isinstance(found, Import):
                return Place(file, found.lineno if found is not None else line)
            inner = self.project.find(found.module, found.level, file) if found.module else None
            if inner is None:
                return Place(file, found.line)
            file, name, line = inner, found.chain[0], found.line
        return Place(file, line)


def _unseen(value: object) -> str | None:
    """Return how people call a function that reaches things by a name made at run time."""
    return _UNSEEN.get(value) if isinstance(value, BuiltinFunctionType | FunctionType) else None
