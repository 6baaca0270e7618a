"""Build the code units of the project's classes: their body, bases, attributes and methods."""

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

from runnel.declare.model.source_location import SourceLocation
from runnel.plan.fingerprint.code.code_unit import CodeUnit, FingerprintPart, short_hash
from runnel.plan.fingerprint.code.name_resolution import NameResolver
from runnel.plan.fingerprint.code.normalized_syntax import Statements
from runnel.plan.fingerprint.project_files import NOTEBOOK

if TYPE_CHECKING:
    from runnel.plan.fingerprint.code.code_walker import CodeWalker

_GENERATED_ATTRIBUTES = {
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__annotations__",
    "__firstlineno__",
    "__qualname__",
}
_GENERATED_ATTRIBUTES |= {
    "__static_attributes__",
    "__classdictcell__",
    "__abstractmethods__",
    "_abc_impl",
    "__parameters__",
}
_GENERATED_ATTRIBUTES |= {
    "__annotate__",
    "__annotate_func__",
    "__annotations_cache__",
    "__dataclass_params__",
    "__dataclass_fields__",
}


def build_class_unit(walker: "CodeWalker", kind: type) -> CodeUnit | None:
    """Return the code unit of a class of the project, or None for another class."""
    home = _find_home(walker, kind)
    if home is None:
        return None
    file, module_globals = home
    unit, is_new = walker.get_or_create_unit(("class", id(kind)), kind, f"{file}:{kind.__qualname__}")
    if is_new:
        unit.fill = lambda unit: _fill_class(walker, unit, kind, file, module_globals)
    return unit


def _fill_class(walker: "CodeWalker", unit: CodeUnit, kind: type, file: str, globals_: dict[str, Any]) -> None:
    source = walker.find_source(walker.project.path(file))
    nodes = source.find_classes(kind.__qualname__) if source is not None else []
    place = SourceLocation(file, nodes[0].lineno if nodes else 1)
    resolver = NameResolver(walker, place, globals_, {}, kind.__qualname__)
    text = kind.__qualname__
    statements: Statements = ()
    for code in (source.normalize_node(node) for node in nodes) if source is not None else ():
        for block in (*(decorator.code for decorator in code.decorators), code):
            text += block.hash
            statements += block.statements
            resolver.follow_names(block.uses, block.imports)
    written_names = {getattr(statement, "name", "") for node in nodes for statement in node.body}
    for base in kind.__bases__:
        resolver.add_value(f"base {base.__qualname__}", base, kind="attribute", lenient=True)
    for name, value in sorted(vars(kind).items(), key=lambda item: item[0]):
        # Skip what decorators such as dataclass generate: it follows from the body of the class.
        if name not in _GENERATED_ATTRIBUTES and (not nodes or name in written_names or not name.startswith("__")):
            resolver.add_value(name, value, kind="attribute", lenient=True)
    resolver.collector.fill_unit(unit, text, FingerprintPart("code", unit.label, short_hash(text), place, statements))


def _find_home(walker: "CodeWalker", kind: type) -> tuple[str, dict[str, Any]] | None:
    """Return the file of a class and the globals of its module, found through its methods if it has any.

    The loader's modules may no longer be in `sys.modules` once it has finished.
    """
    for value in vars(kind).values():
        inner = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
        if isinstance(inner, FunctionType) and inner.__globals__.get("__name__") == kind.__module__:
            file = walker.find_home(inner)
            if file is not None:
                return file, inner.__globals__
    module = sys.modules.get(kind.__module__)
    if module is None:
        file = walker.project.find_module_file(kind.__module__)
        return (file, {}) if file is not None else None
    file = walker.project.module_file(module)
    if file is None and kind.__module__ == "__main__" and not hasattr(module, "__file__"):
        file = NOTEBOOK
    return (file, vars(module)) if file is not None else None
