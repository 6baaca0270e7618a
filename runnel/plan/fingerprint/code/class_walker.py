"""Classes of the project: their body, their bases, and what their names stand for, methods among them."""

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

from runnel.declare.model.source_location import Place
from runnel.plan.fingerprint.code.code_unit import Part, Unit, mark
from runnel.plan.fingerprint.code.name_resolution import Names
from runnel.plan.fingerprint.code.normalized_syntax import Statements
from runnel.plan.fingerprint.project_files import NOTEBOOK

if TYPE_CHECKING:
    from runnel.plan.fingerprint.code.code_walker import Reach

_MADE = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "__qualname__"}
_MADE |= {"__static_attributes__", "__classdictcell__", "__abstractmethods__", "_abc_impl", "__parameters__"}
_MADE |= {"__annotate__", "__annotate_func__", "__annotations_cache__", "__dataclass_params__", "__dataclass_fields__"}


def class_unit(reach: "Reach", kind: type) -> Unit | None:
    """Return the piece for a class of the project."""
    home = _home(reach, kind)
    if home is None:
        return None
    file, names = home
    unit, is_new = reach.remembered(("class", id(kind)), kind, f"{file}:{kind.__qualname__}")
    if is_new:
        unit.fill = lambda unit: _fill(reach, unit, kind, file, names)
    return unit


def _fill(reach: "Reach", unit: Unit, kind: type, file: str, globals_: dict[str, Any]) -> None:
    source = reach.source(reach.project.path(file))
    nodes = source.classes(kind.__qualname__) if source is not None else []
    line = nodes[0].lineno if nodes else 1
    names = Names(reach, file, globals_, {}, kind.__qualname__, line)
    text = kind.__qualname__
    statements: Statements = ()
    for code in (source.code_of(node) for node in nodes) if source is not None else ():
        for each in (*(decorator.code for decorator in code.decorators), code):
            text += each.hash
            statements += each.statements
            names.follow(each.loads, each.imports)
    written = {getattr(statement, "name", "") for node in nodes for statement in node.body}
    for base in kind.__bases__:
        names.add_value(f"base {base.__qualname__}", base, kind="attribute", lenient=True)
    for name, value in sorted(vars(kind).items(), key=lambda item: item[0]):
        # What dataclass and the like add, the body of the class says already.
        if name not in _MADE and (not nodes or name in written or not name.startswith("__")):
            names.add_value(name, value, kind="attribute", lenient=True)
    names.gathering.finish(unit, text, Part("code", unit.label, mark(text), Place(file, line), statements))


def _home(reach: "Reach", kind: type) -> tuple[str, dict[str, Any]] | None:
    """Return the file of a class and the names around it, by its methods where it has any.

    The modules that a loader makes need not be registered once it is done.
    """
    for value in vars(kind).values():
        inner = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
        if isinstance(inner, FunctionType) and inner.__globals__.get("__name__") == kind.__module__:
            file = reach.home(inner)
            if file is not None:
                return file, inner.__globals__
    module = sys.modules.get(kind.__module__)
    if module is None:
        file = reach.project.find(kind.__module__)
        return (file, {}) if file is not None else None
    file = reach.project.module_file(module)
    if file is None and kind.__module__ == "__main__" and not hasattr(module, "__file__"):
        file = NOTEBOOK
    return (file, vars(module)) if file is not None else None
