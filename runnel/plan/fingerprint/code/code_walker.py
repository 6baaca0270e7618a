"""Follow the code that functions use: names in their globals, closures and defaults, through the project's modules.

Reads objects in memory and the source of the project's files; of the user's code it calls only what turns a value into
text.
"""

import linecache
import sys
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from runnel.declare.model.source_location import SourceLocation
from runnel.plan.fingerprint.code.bytecode import hash_bytecode, list_code_names
from runnel.plan.fingerprint.code.class_walker import build_class_unit
from runnel.plan.fingerprint.code.code_unit import CodeUnit, FingerprintPart, short_hash
from runnel.plan.fingerprint.code.free_names import NameUse
from runnel.plan.fingerprint.code.name_resolution import NameResolver
from runnel.plan.fingerprint.code.normalized_syntax import NormalizedCode
from runnel.plan.fingerprint.code.source_index import SourceIndex, load_source_index
from runnel.plan.fingerprint.project_files import NOTEBOOK, ProjectFiles
from runnel.plan.fingerprint.stable_values import ValueWriter


class CodeWalker:
    """Creates and caches code units. Keeps their objects alive, so that no `id` is used twice."""

    def __init__(self, project: ProjectFiles) -> None:
        self.project = project
        self._units: dict[object, tuple[object, CodeUnit]] = {}
        self._sources: dict[str, SourceIndex | None] = {}

    def find_source(self, filename: str) -> SourceIndex | None:
        """Return the index of a source file, cached; None if there is no source."""
        if filename not in self._sources:
            self._sources[filename] = load_source_index(filename)
        return self._sources[filename]

    def find_unit(self, value: object) -> CodeUnit | None:
        """Return the code unit of a function, class or module of the project, or None for anything else."""
        if isinstance(value, FunctionType):
            return self.function_unit(value)
        if isinstance(value, type):
            return build_class_unit(self, value)
        file = self.project.module_file(value) if isinstance(value, ModuleType) else None
        return self.file_unit(file, vars(value)) if file is not None else None

    def get_or_create_unit(self, key: object, value: object, label: str) -> tuple[CodeUnit, bool]:
        """Return the code unit for a key, and whether it is new."""
        cached = self._units.get(key)
        if cached is not None:
            return cached[1], False
        unit = CodeUnit(label)
        self._units[key] = (value, unit)
        return unit, True

    def create_value_writer(self, *, lenient: bool = False) -> ValueWriter:
        """Return a writer that turns a value into text."""
        return ValueWriter(self.project, self.find_unit, lenient=lenient)

    def find_home(self, function: FunctionType) -> str | None:
        """Return the project's file of a function, `NOTEBOOK` for a cell, or None if it belongs to a package."""
        filename = function.__code__.co_filename
        file = self.project.file(filename)
        if file is not None:
            return file
        entry = linecache.cache.get(filename)
        if entry is not None and len(entry) > 1 and entry[1] is None:  # lines without a file: a notebook cell
            return NOTEBOOK
        if not filename.startswith("<") or filename.startswith("<frozen"):
            return None
        owner = function.__globals__.get("__file__")
        if owner is not None:
            return self.project.file(str(owner))
        module = str(function.__globals__.get("__name__", "__main__"))
        return NOTEBOOK if module.partition(".")[0] not in sys.stdlib_module_names else None

    def function_unit(self, function: FunctionType, set_params: frozenset[str] = frozenset()) -> CodeUnit | None:
        """Return the piece for a function of the project. `set_params` are parameters whose defaults are not used."""
        file = self.find_home(function)
        if file is None:
            return None
        label = f"{file}:{function.__code__.co_qualname}"
        unit, is_new = self.get_or_create_unit((id(function), set_params), function, label)
        if is_new:
            code = self.find_code(function.__code__)
            unit.annotations = code.annotations if code else ""
            unit.fill = lambda unit: self._fill_function(unit, function, file, code, set_params)
        return unit

    def find_code(self, code: CodeType) -> NormalizedCode | None:
        """Return a function's normalized code from its source, or None if it has no source or was edited since."""
        source = self.find_source(code.co_filename)
        node = source.find_function(code) if source is not None else None
        return source.normalize_node(node) if source is not None and node is not None else None

    def file_unit(self, file: str, file_globals: Mapping[str, Any] | None) -> CodeUnit:
        """Return the code unit of a whole file: its code, the files that it imports, and its globals if passed."""
        unit, is_new = self.get_or_create_unit(("file", file, file_globals is None), file_globals, file)
        if is_new:
            unit.fill = lambda unit: self._fill_file(unit, file, file_globals or {})
        return unit

    def value_unit(self, value: object, *, lenient: bool = False) -> CodeUnit:
        """Return the code unit of a value."""
        unit, is_new = self.get_or_create_unit(("value", id(value), lenient), value, "")
        if is_new:
            writer = self.create_value_writer(lenient=lenient)
            unit.own_text = writer.write(value)
            unit.refs = writer.refs
            unit.unknown = tuple(dict.fromkeys(writer.unknown))
        return unit

    def _fill_function(
        self, unit: CodeUnit, function: FunctionType, file: str, code: NormalizedCode | None, set_params: frozenset[str]
    ) -> None:
        code_object = function.__code__
        place = SourceLocation(file, code.statements[0][0] if code else code_object.co_firstlineno)
        resolver = NameResolver(self, place, function.__globals__, _read_closure(function), code_object.co_qualname)
        text = code.hash if code else hash_bytecode(code_object)
        resolver.add_defaults(function, set_params)
        statements = code.statements if code else ()
        for decorator in code.decorators if code else ():
            if not resolver.is_runnel_decorator(decorator.callee):
                text += decorator.code.hash
                statements = decorator.code.statements + statements
                resolver.follow_names(decorator.code.uses, decorator.code.imports)
        if code:
            resolver.follow_names(code.uses, code.imports)
        else:
            resolver.follow_names(
                [NameUse((name,), True, code_object.co_firstlineno) for name in list_code_names(code_object)], ()
            )
        part = FingerprintPart("code", unit.label, short_hash(text), place, statements)
        resolver.collector.fill_unit(unit, text, part)

    def _fill_file(self, unit: CodeUnit, file: str, file_globals: Mapping[str, Any]) -> None:
        source = self.find_source(self.project.path(file))
        code = source.normalize_node(source.tree) if source is not None else None
        resolver = NameResolver(self, SourceLocation(file, 1), file_globals, {}, "")
        files = {
            resolver.find_imported_file(reference)
            for reference in (source.iter_imports() if source is not None else ())
        }
        for imported in sorted(reference for reference in files if reference is not None):
            resolver.collector.add_unit("file", self.file_unit(imported, None))
        for name in sorted(file_globals):
            if not name.startswith("__"):
                resolver.add_value(name, file_globals[name], kind="attribute", lenient=True)
        text = code.hash if code else ""
        part = FingerprintPart(
            "code", unit.label, short_hash(text), SourceLocation(file, 1), code.statements if code else ()
        )
        resolver.collector.fill_unit(unit, text, part)


def _read_closure(function: FunctionType) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            values[name] = None
    return values
