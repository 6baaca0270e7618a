"""Resolve the names that a function uses: to values, functions, modules, or something that can't be followed.

Looks names up in globals and closures; of the user's code it calls only what turns a value into text.
"""

import ast
import builtins
import importlib
import sys
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from runnel.declare.model.source_location import SourceLocation
from runnel.plan.fingerprint.code.free_names import ImportedName, NameUse
from runnel.plan.fingerprint.code.reference_collector import ReferenceCollector
from runnel.plan.fingerprint.project_files import NOTEBOOK

if TYPE_CHECKING:
    from runnel.plan.fingerprint.code.code_walker import CodeWalker

_MISSING = object()
_DYNAMIC_LOOKUPS: dict[object, str] = {
    builtins.eval: "eval",
    builtins.exec: "exec",
    builtins.globals: "globals()",
    builtins.__import__: "__import__",
    importlib.import_module: "importlib.import_module",
}
_MODULE_ATTRIBUTES = {"__name__", "__package__", "__spec__", "__loader__", "__builtins__", "__doc__", "__cached__"}


class NameResolver:
    """Resolves the names of one function or file in its globals and closure."""

    def __init__(
        self,
        walker: "CodeWalker",
        place: SourceLocation,
        globals_: Mapping[str, Any],
        closure: Mapping[str, Any],
        owner: str,
    ) -> None:
        self.walker = walker
        self.project = walker.project
        self.place = place
        self.file = place.file
        self.globals = globals_
        self.closure = closure
        self.owner = owner
        self.collector = ReferenceCollector()

    def follow_names(self, uses: Iterable[NameUse], imports: Iterable[ImportedName]) -> None:
        """Follow every name."""
        for name_use in uses:
            self.add_name_use(name_use)
        for imported_name in imports:
            self.add_import(imported_name)

    def add_name_use(self, name_use: NameUse) -> None:
        """Follow one name and the attributes accessed on it."""
        base, *attributes = name_use.chain
        if base in self.closure:
            return self.add_attribute_chain(base, self.closure[base], attributes, name_use, "value")
        if base in _MODULE_ATTRIBUTES:
            return None
        if base == "__file__":
            return self.collector.add_text(f"file {self.file}")
        value = self.globals.get(base, _MISSING)
        if value is not _MISSING:
            return self.add_attribute_chain(base, value, attributes, name_use, "constant")
        builtin = getattr(builtins, base, _MISSING)
        dynamic_lookup = _dynamic_lookup_name(builtin)
        if dynamic_lookup:
            return self.add_file(self.file, f"{dynamic_lookup} at {self.file}:{name_use.line}")
        return self.collector.add_text(f"{base} builtin" if builtin is not _MISSING else f"{base} missing")

    def add_attribute_chain(
        self, name: str, value: object, attributes: list[str], name_use: NameUse, kind: str
    ) -> None:
        """Follow attributes through modules, then add the value that they lead to."""
        home = self.file
        while isinstance(value, ModuleType):
            file = self.project.module_file(value)
            if file is None and not self.project.is_package(value):
                return self.add_installed(value, attributes, name_use)
            if not attributes:
                return self.add_module(value, file, name, name_use)
            name, *attributes = attributes
            home = file or home
            if name not in vars(value):
                return (
                    self.collector.add_text(f"{name} missing")
                    if file is None
                    else self.add_module(value, file, name, name_use)
                )
            value, kind = vars(value)[name], "constant"
        return self.add_value(name, value, home=home, name_use=name_use, attributes=attributes, kind=kind)

    def add_installed(self, module: ModuleType, attributes: list[str], name_use: NameUse) -> None:
        """Add something from an installed package by its name."""
        attribute_value = (
            getattr(module, attributes[0], None)
            if attributes and module.__name__ in ("importlib", "builtins", "sys")
            else None
        )
        dynamic_lookup = "sys.modules" if attribute_value is sys.modules else _dynamic_lookup_name(attribute_value)
        if dynamic_lookup:
            return self.add_file(self.file, f"{dynamic_lookup} at {self.file}:{name_use.line}")
        return self.collector.add_text(".".join([module.__name__, *attributes]))

    def add_module(self, module: ModuleType, file: str | None, name: str, name_use: NameUse) -> None:
        """Add a module of the project that is used as a value: any of its names may be used."""
        if file is not None:
            self.collector.add_unit("file", self.walker.file_unit(file, vars(module)))
            self.collector.add_warning(
                f"{file} counts as a whole: `{name}` is used as a value at {self.file}:{name_use.line}"
            )

    def add_file(self, file: str, why: str) -> None:
        """Add a whole file, with the reason `why`."""
        if file == NOTEBOOK:
            self.collector.add_warning(f"not followed: {why}")
            return
        file_globals = self.globals if file == self.file else None
        self.collector.add_unit("file", self.walker.file_unit(file, file_globals))
        self.collector.add_warning(f"{file} counts as a whole: {why}")

    def add_value(
        self,
        name: str,
        value: object,
        *,
        home: str = "",
        name_use: NameUse | None = None,
        attributes: Iterable[str] = (),
        kind: str = "constant",
        lenient: bool = False,
    ) -> None:
        """Add what a name refers to: a code unit, or a value."""
        line = name_use.line if name_use else self.place.line
        dynamic_lookup = _dynamic_lookup_name(value)
        if dynamic_lookup and not lenient:
            return self.add_file(self.file, f"{dynamic_lookup} at {self.file}:{line}")
        if isinstance(value, FunctionType | type):
            unit = self.walker.find_unit(value)
            if unit is not None:
                annotations = "" if name_use is None or name_use.is_called else unit.annotations
                self.collector.add_unit(f"{name} code {annotations}", unit)
                for attribute in attributes:
                    if attribute in vars(value) and isinstance(value, FunctionType):
                        self.add_value(f"{name}.{attribute}", vars(value)[attribute], home=home, name_use=name_use)
                return None
        unit = self.walker.value_unit(value, lenient=lenient)
        place = self.find_binding_location(home or self.file, name, line) if kind == "constant" else self.place
        self.collector.add_value(name, unit, kind, self.full_name(kind, name, place), place)
        for type_name in unit.unknown:
            self.add_file(place.file, f"`{name}` is a {type_name} at {place}")
        if type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark."):
            self.add_creating_statement(place, name)
        return None

    def add_creating_statement(self, place: SourceLocation, name: str) -> None:
        """Follow the statement that creates a Spark column expression, whose text does not show the functions in it."""
        source = self.walker.find_source(self.project.path(place.file))
        node = source.find_binding(name) if source is not None else None
        if (
            source is None
            or not isinstance(node, ast.Assign | ast.AnnAssign)
            or place in self.collector.followed_statements
        ):
            return
        self.collector.followed_statements.add(place)
        if place.file == self.file:
            self.follow_names(
                (name_use for name_use in source.normalize_node(node).uses if name_use.chain[0] != name), ()
            )
        else:
            self.collector.add_unit("file", self.walker.file_unit(place.file, None))

    def add_import(self, imported_name: ImportedName) -> None:
        """Follow an import statement within a function: add the whole imported file.

        It must not matter whether the module is already imported: running the function once imports it.
        """
        file = self.find_imported_file(imported_name)
        if file is not None:
            return self.add_file(file, f"imported within a function at {self.file}:{imported_name.line}")
        name = ".".join([imported_name.module, *imported_name.chain])
        if name == "importlib.import_module":
            return self.add_file(self.file, f"{name} at {self.file}:{imported_name.line}")
        return self.collector.add_text(name)

    def find_imported_file(self, imported_name: ImportedName) -> str | None:
        """Return the project's file that an import names, that of the innermost module; else None."""
        names = [name for name in imported_name.module.split(".") if name] + list(imported_name.chain)
        for count in range(len(names), 0, -1):
            file = self.project.find_module_file(".".join(names[:count]), imported_name.level, self.file)
            if file is not None:
                return file
        return None

    def add_defaults(self, function: FunctionType, set_params: frozenset[str]) -> None:
        """Add the default values of parameters that are not in `set_params`."""
        code = function.__code__
        defaults = function.__defaults__ or ()
        positional = code.co_varnames[: code.co_argcount]
        default_values = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
        default_values.update(function.__kwdefaults__ or {})
        for name, value in default_values.items():
            if name not in set_params:
                self.add_value(name, value, kind="default")

    def is_runnel_decorator(self, chain: tuple[str, ...]) -> bool:
        """Return whether a decorator is Runnel's own: the task already holds its options."""
        if not chain or chain[0] not in self.globals:
            return chain[-1:] == ("task",)  # imported inside a function that declares tasks
        value = self.globals[chain[0]]
        for name in chain[1:]:
            value = getattr(value, name, None) if isinstance(value, ModuleType) else None
        return str(getattr(value, "__module__", "")).partition(".")[0] == "runnel"

    def full_name(self, kind: str, name: str, place: SourceLocation) -> str:
        """Return a qualified name that distinguishes values of the same name."""
        return f"{place.file}:{name}" if kind == "constant" else f"{self.file}:{self.owner}:{name}"

    def find_binding_location(self, file: str, name: str, line: int) -> SourceLocation:
        """Return the location where a name of a file gets its value, following imports."""
        for _ in range(20):
            source = self.walker.find_source(self.project.path(file))
            binding = source.find_binding(name.partition(".")[0]) if source is not None else None
            if not isinstance(binding, ImportedName):
                return SourceLocation(file, binding.lineno if binding is not None else line)
            imported_file = (
                self.project.find_module_file(binding.module, binding.level, file) if binding.module else None
            )
            if imported_file is None:
                return SourceLocation(file, binding.line)
            file, name, line = imported_file, binding.chain[0], binding.line
        return SourceLocation(file, line)


def _dynamic_lookup_name(value: object) -> str | None:
    """Return the display name of a function that looks things up by a name computed at run time; else None."""
    return _DYNAMIC_LOOKUPS.get(value) if isinstance(value, BuiltinFunctionType | FunctionType) else None
