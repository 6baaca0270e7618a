"""Follow what functions reach: names in their globals, closures and defaults, through the modules of the project.

Looks at objects as they are in memory and at the source of the project's files; calls nothing of the user's but what
turns a value into text.
"""

import linecache
import sys
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from runnel.declare.model.source_location import Place
from runnel.plan.fingerprint.code.bytecode import bytecode, names_in
from runnel.plan.fingerprint.code.class_walker import class_unit
from runnel.plan.fingerprint.code.code_unit import Part, Unit, mark
from runnel.plan.fingerprint.code.free_names import Load
from runnel.plan.fingerprint.code.name_resolution import Names
from runnel.plan.fingerprint.code.normalized_syntax import Code
from runnel.plan.fingerprint.code.source_index import SourceFile, source_file
from runnel.plan.fingerprint.project_files import NOTEBOOK, Project
from runnel.plan.fingerprint.stable_values import ValueWriter


class Reach:
    """The pieces known so far. Objects are kept alive with them, so that no address is used twice."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._units: dict[object, tuple[object, Unit]] = {}
        self._sources: dict[str, SourceFile | None] = {}

    def source(self, filename: str) -> SourceFile | None:
        """Return a source file, looked at once."""
        if filename not in self._sources:
            self._sources[filename] = source_file(filename)
        return self._sources[filename]

    def unit_of(self, value: object) -> Unit | None:
        """Return the piece for something of the project that is followed, or None for anything else."""
        if isinstance(value, FunctionType):
            return self.function(value)
        if isinstance(value, type):
            return class_unit(self, value)
        file = self.project.module_file(value) if isinstance(value, ModuleType) else None
        return self.file(file, vars(value)) if file is not None else None

    def remembered(self, key: object, value: object, label: str) -> tuple[Unit, bool]:
        """Return the piece under a key, and whether it is new."""
        known = self._units.get(key)
        if known is not None:
            return known[1], False
        unit = Unit(label)
        self._units[key] = (value, unit)
        return unit, True

    def writer(self, *, lenient: bool = False) -> ValueWriter:
        """Return what writes a value."""
        return ValueWriter(self.project, self.unit_of, lenient=lenient)

    def home(self, function: FunctionType) -> str | None:
        """Return the file of a function as people know it, or None where it belongs to a package."""
        filename = function.__code__.co_filename
        file = self.project.file(filename)
        if file is not None:
            return file
        entry = linecache.cache.get(filename)
        if entry is not None and len(entry) > 1 and entry[1] is None:  # lines without a file: a cell
            return NOTEBOOK
        if not filename.startswith("<") or filename.startswith("<frozen"):
            return None
        owner = function.__globals__.get("__file__")
        if owner is not None:
            return self.project.file(str(owner))
        module = str(function.__globals__.get("__name__", "__main__"))
        return NOTEBOOK if module.partition(".")[0] not in sys.stdlib_module_names else None

    def function(self, function: FunctionType, given: frozenset[str] = frozenset()) -> Unit | None:
        """Return the piece for a function of the project. `given` are parameters whose defaults are not used."""
        file = self.home(function)
        if file is None:
            return None
        label = f"{file}:{function.__code__.co_qualname}"
        unit, is_new = self.remembered((id(function), given), function, label)
        if is_new:
            code = self.code(function.__code__)
            unit.annotations = code.annotations if code else ""
            unit.fill = lambda unit: self._fill_function(unit, function, file, code, given)
        return unit

    def code(self, code: CodeType) -> Code | None:
        """Return a function's code from its source, or None where there is none or it was edited since."""
        source = self.source(code.co_filename)
        node = source.function(code) if source is not None else None
        return source.code_of(node) if source is not None and node is not None else None

    def file(self, file: str, around: Mapping[str, Any] | None) -> Unit:
        """Return the piece for a whole file: its code, the files that it imports, and its values where given."""
        unit, is_new = self.remembered(("file", file, around is None), around, file)
        if is_new:
            unit.fill = lambda unit: self._fill_file(unit, file, around or {})
        return unit

    def value(self, value: object, *, lenient: bool = False) -> Unit:
        """Return the piece for a value."""
        unit, is_new = self.remembered(("value", id(value), lenient), value, "")
        if is_new:
            writer = self.writer(lenient=lenient)
            unit.own = writer.write(value)
            unit.refs = writer.refs
            unit.unknown = tuple(dict.fromkeys(writer.unknown))
        return unit

    def _fill_function(
        self, unit: Unit, function: FunctionType, file: str, code: Code | None, given: frozenset[str]
    ) -> None:
        raw = function.__code__
        line = code.statements[0][0] if code else raw.co_firstlineno
        names = Names(self, file, function.__globals__, _closure(function), raw.co_qualname, line)
        text = code.hash if code else bytecode(raw)
        names.add_defaults(function, given)
        statements = code.statements if code else ()
        for decorator in code.decorators if code else ():
            if not names.is_runnel(decorator.callee):
                text += decorator.code.hash
                statements = decorator.code.statements + statements
                names.follow(decorator.code.loads, decorator.code.imports)
        if code:
            names.follow(code.loads, code.imports)
        else:
            names.follow([Load((name,), True, raw.co_firstlineno) for name in names_in(raw)], ())
        part = Part("code", unit.label, mark(text), Place(file, line), statements)
        names.gathering.finish(unit, text, part)

    def _fill_file(self, unit: Unit, file: str, around: Mapping[str, Any]) -> None:
        source = self.source(self.project.path(file))
        code = source.code_of(source.tree) if source is not None else None
        names = Names(self, file, around, {}, "", 1)
        files = {names.imported_file(found) for found in (source.imports() if source is not None else ())}
        for imported in sorted(found for found in files if found is not None):
            names.gathering.refer("file", self.file(imported, None))
        for name in sorted(around):
            if not name.startswith("__"):
                names.add_value(name, around[name], kind="attribute", lenient=True)
        text = code.hash if code else ""
        part = Part("code", unit.label, mark(text), Place(file, 1), code.statements if code else ())
        names.gathering.finish(unit, text, part)


def _closure(function: FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            found[name] = None
    return found
