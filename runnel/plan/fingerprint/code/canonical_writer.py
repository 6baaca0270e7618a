"""Writes syntax as text that formatting can't change, statement by statement, noting the names that it uses.

Pure. Line numbers are kept beside the text, for people, and are never part of it.
"""

import ast
import hashlib
from collections.abc import Callable
from typing import Any

from runnel.plan.fingerprint.code.free_names import Import, Load, Scope

SHORT = 3  # bytes; only to find what changed, never part of a key
_SKIPPED = {"ctx", "kind", "type_comment", "type_ignores", "type_params", "annotation", "returns", "decorator_list"}


def dotted(node: ast.expr) -> tuple[str, ...]:
    """Return `a.b.c` as ("a", "b", "c"), and nothing for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def short(text: str) -> str:
    """Return a hash that is good enough to find what changed."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=SHORT).hexdigest()


def signature_annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the annotations of a signature as text."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    found = [(each.arg, each.annotation) for each in named if each is not None and each.annotation is not None]
    written = [f"{name}:{ast.dump(annotation)}" for name, annotation in found]
    return ",".join(written + ([f"->{ast.dump(node.returns)}"] if node.returns is not None else []))


class Writer:
    """Writes a block as text, statement by statement, noting names as it goes."""

    def __init__(self, kind: str = "function", *, skip_methods: bool = False) -> None:
        self.scope = Scope("class" if kind == "class" else "function")
        self.scopes = [self.scope]
        self.skip_methods = skip_methods
        self.out: list[str] = []
        self.inner: list[tuple[list[ast.stmt], Scope]] = []
        self.texts: list[tuple[int, str]] = []

    def block(self, body: list[ast.stmt], depth: int, slot: int) -> None:
        """Write statements that stand in one block of their owner."""
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring, or another constant that does nothing
            if isinstance(statement, ast.AnnAssign) and self._is_bare(statement):
                continue
            self.statement_of(statement, lambda node=statement: self.write(node), depth, slot)  # type: ignore[misc]

    def statement_of(self, node: ast.AST, write: Callable[[], object], depth: int = 0, slot: int = 0) -> None:
        """Write one statement, then the blocks in it: each with its depth and which block of its owner it is in."""
        self.out, self.inner = [], []
        write()
        line: int = node.lineno  # type: ignore[attr-defined]
        self.texts.append((line, f"{depth}.{slot} " + "".join(self.out)))
        inner, scope = self.inner, self.scope
        for number, (body, body_scope) in enumerate(inner):
            self.scope = body_scope
            self.block(body, depth + 1, number)
        self.scope = scope

    def write(self, node: ast.AST) -> None:
        """Write any piece of syntax."""
        kind = type(node)
        special = _SPECIAL.get(kind)
        if special is not None:
            special(self, node)
        else:
            self._plain(node, kind.__name__)

    def _plain(self, node: ast.AST, name: str) -> None:
        out = self.out
        out.append(f"({name}")
        for field in node._fields:
            if field not in _SKIPPED:
                self._part(getattr(node, field, None))
        out.append(")")

    def _part(self, value: object) -> None:
        if isinstance(value, ast.AST):
            self.write(value)
        elif not isinstance(value, list):
            self.out.append(f" {value!r}")
        elif value and isinstance(value[0], ast.stmt):
            self.out.append("{}")
            self.inner.append((value, self.scope))
        else:
            self.out.append("[")
            for item in value:
                self._part(item)
            self.out.append("]")

    def _name(self, node: ast.Name) -> None:
        self.out.append(f" {node.id}")
        if isinstance(node.ctx, ast.Load):
            self.scope.loads.append(Load((node.id,), False, node.lineno))
        else:
            self.scope.bind(node.id)

    def _attribute(self, node: ast.Attribute) -> None:
        chain = dotted(node)
        if chain:
            self.out.append(f" {'.'.join(chain)}")
            self.scope.loads.append(Load(chain, False, node.lineno))
        else:
            self.write(node.value)
            self.out.append(f".{node.attr}")

    def _constant(self, node: ast.Constant) -> None:
        self.out.append(f" {type(node.value).__name__}:{node.value!r}")

    def _call(self, node: ast.Call) -> None:
        self.out.append("(Call")
        chain = dotted(node.func)
        if chain:
            self.out.append(f" {'.'.join(chain)}")
            self.scope.loads.append(Load(chain, True, node.lineno))
        else:
            self.write(node.func)
        arguments = node.args
        if chain == ("getattr",) and len(arguments) > 1 and isinstance(arguments[1], ast.Constant):
            owner = dotted(arguments[0])
            if owner:  # getattr(helpers, "clean") is helpers.clean
                self.out.append(f" {'.'.join(owner)}")
                self.scope.loads.append(Load((*owner, str(arguments[1].value)), False, node.lineno))
                arguments = arguments[1:]
        self._part(arguments)
        self._part(node.keywords)
        self.out.append(")")

    def header(self, name: str, node: ast.arguments) -> None:
        """Write the first line of a function."""
        self.out.append(name)
        self._signature(node)

    def _signature(self, node: ast.arguments) -> None:
        """Write the names of the parameters, and bind them in the present scope."""
        self.out.append("(")
        for mark, group in (("/", node.posonlyargs), ("", node.args), ("*", node.kwonlyargs)):
            self.out.append(mark + ",".join(each.arg for each in group) + ";")
            self.scope.bound.update(each.arg for each in group)
        for mark, one in (("*", node.vararg), ("**", node.kwarg)):
            if one is not None:
                self.out.append(mark + one.arg)
                self.scope.bind(one.arg)
        self.out.append(")")

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.out.append(f"({type(node).__name__} {node.name}")
        self.scope.bind(node.name)
        if self.skip_methods and self.scope is self.scopes[0]:
            self.out.append(")")
            return
        self._part(node.decorator_list)
        self._defaults(node.args)
        self.out.append(signature_annotations(node))  # whoever gets the inner function may read them
        self.inner.append((node.body, self._enter("function")))
        self._signature(node.args)
        self._leave()
        self.out.append(")")

    def _lambda(self, node: ast.Lambda) -> None:
        self.out.append("(Lambda")
        self._defaults(node.args)
        self._enter("function")
        self._signature(node.args)
        self.write(node.body)
        self._leave()
        self.out.append(")")

    def _defaults(self, node: ast.arguments) -> None:
        self._part(node.defaults)
        self._part(node.kw_defaults)

    def _class(self, node: ast.ClassDef) -> None:
        self._part(node.decorator_list)
        self.scope.bind(node.name)
        self.class_header(node)
        self.inner.append((node.body, self._enter("class")))
        self._leave()

    def class_header(self, node: ast.ClassDef) -> None:
        """Write the first line of a class."""
        self.out.append(f"(ClassDef {node.name}")
        self._part(node.bases)
        self._part(node.keywords)
        self.out.append(")")

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        self.out.append(f"({type(node).__name__}")
        self.write(node.generators[0].iter)  # the first iterable is read outside
        self._enter("comprehension")
        for number, generator in enumerate(node.generators):
            self.out.append(" async" if generator.is_async else " for")
            self.write(generator.target)
            if number:
                self.write(generator.iter)
            self._part(generator.ifs)
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                self._part(getattr(node, field))
        self._leave()
        self.out.append(")")

    def _walrus(self, node: ast.NamedExpr) -> None:
        self.out.append(f"(NamedExpr {node.target.id}")
        self.scope.bind_walrus(node.target.id)
        self.write(node.value)
        self.out.append(")")

    def _is_bare(self, node: ast.AnnAssign) -> bool:
        """Tell whether it is a mere declaration of a local name, and bind the name."""
        if isinstance(node.target, ast.Name):
            self.scope.bind(node.target.id)
        return node.value is None and self.scope.kind != "class"

    def _annotated(self, node: ast.AnnAssign) -> None:
        if self.scope.kind == "class":  # fields of a dataclass, for one
            self._plain(node, "AnnAssign")
            self.write(node.annotation)
        else:
            self.out.append("(Assign")
            self._part([node.target])
            self._part(node.value)
            self.out.append(")")

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        self._plain(node, type(node).__name__)
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                found = Import(node.level, node.module or "", (alias.name,), node.lineno)
                name = alias.asname or alias.name
            else:
                found = Import(0, alias.name if alias.asname else alias.name.partition(".")[0], (), node.lineno)
                name = alias.asname or alias.name.partition(".")[0]
            self.scope.bind(name)
            self.scope.imports[name] = found

    def _declared(self, node: ast.Global | ast.Nonlocal) -> None:
        self._plain(node, type(node).__name__)
        (self.scope.globals if isinstance(node, ast.Global) else self.scope.nonlocals).update(node.names)

    def _captured(self, node: ast.AST) -> None:
        """Write what binds a plain name: an except clause, a pattern."""
        self._plain(node, type(node).__name__)
        name = getattr(node, "rest", None) or getattr(node, "name", None)
        if name:
            self.scope.bind(name)

    def _enter(self, kind: str) -> Scope:
        self.scope = Scope(kind, self.scope)  # type: ignore[arg-type]
        self.scopes.append(self.scope)
        return self.scope

    def _leave(self) -> None:
        assert self.scope.parent is not None
        self.scope = self.scope.parent


_SPECIAL: dict[type[ast.AST], Callable[[Writer, Any], None]] = {
    ast.Name: Writer._name,
    ast.Attribute: Writer._attribute,
    ast.Constant: Writer._constant,
    ast.Call: Writer._call,
    ast.FunctionDef: Writer._function,
    ast.AsyncFunctionDef: Writer._function,
    ast.Lambda: Writer._lambda,
    ast.ClassDef: Writer._class,
    ast.ListComp: Writer._comprehension,
    ast.SetComp: Writer._comprehension,
    ast.GeneratorExp: Writer._comprehension,
    ast.DictComp: Writer._comprehension,
    ast.NamedExpr: Writer._walrus,
    ast.AnnAssign: Writer._annotated,
    ast.Import: Writer._imported,
    ast.ImportFrom: Writer._imported,
    ast.Global: Writer._declared,
    ast.Nonlocal: Writer._declared,
    ast.ExceptHandler: Writer._captured,
    ast.MatchAs: Writer._captured,
    ast.MatchStar: Writer._captured,
    ast.MatchMapping: Writer._captured,
}
