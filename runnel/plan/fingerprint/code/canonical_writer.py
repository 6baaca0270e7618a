"""Write syntax as text independent of formatting, statement by statement, and record the names that it uses.

Pure. Line numbers are kept separately, for people, and are never part of the text.
"""

import ast
import hashlib
from collections.abc import Callable
from typing import Any

from runnel.plan.fingerprint.code.free_names import ImportedName, NameScope, NameUse

SHORT_HASH_BYTES = 3  # bytes; only to find what changed, never part of a key
_SKIPPED = {"ctx", "kind", "type_comment", "type_ignores", "type_params", "annotation", "returns", "decorator_list"}


def split_dotted_name(node: ast.expr) -> tuple[str, ...]:
    """Split `a.b.c` into ("a", "b", "c"); return an empty tuple for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def hash_statement(text: str) -> str:
    """Return a short hash of a statement, sufficient to find what changed."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=SHORT_HASH_BYTES).hexdigest()


def write_annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the annotations of a signature as text."""
    arguments = node.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotated = [
        (parameter.arg, parameter.annotation)
        for parameter in parameters
        if parameter is not None and parameter.annotation is not None
    ]
    annotation_texts = [f"{name}:{ast.dump(annotation)}" for name, annotation in annotated]
    return ",".join(annotation_texts + ([f"->{ast.dump(node.returns)}"] if node.returns is not None else []))


class SyntaxWriter:
    """Writes a block as text, statement by statement, and records the names that it uses."""

    def __init__(self, kind: str = "function", *, skip_methods: bool = False) -> None:
        self.scope = NameScope("class" if kind == "class" else "function")
        self.scopes = [self.scope]
        self.skip_methods = skip_methods
        self.out: list[str] = []
        self.inner_blocks: list[tuple[list[ast.stmt], NameScope]] = []
        self.statement_texts: list[tuple[int, str]] = []

    def write_block(self, body: list[ast.stmt], depth: int, slot: int) -> None:
        """Write the statements of one block; `slot` is the number of the block in the statement that contains it."""
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring, or another constant that does nothing
            if isinstance(statement, ast.AnnAssign) and self._bind_if_bare(statement):
                continue
            self.write_statement(statement, lambda node=statement: self.write(node), depth, slot)  # type: ignore[misc]

    def write_statement(self, node: ast.AST, write: Callable[[], object], depth: int = 0, slot: int = 0) -> None:
        """Write one statement, then its inner blocks, each with its depth and its number."""
        self.out, self.inner_blocks = [], []
        write()
        line: int = node.lineno  # type: ignore[attr-defined]
        self.statement_texts.append((line, f"{depth}.{slot} " + "".join(self.out)))
        inner, scope = self.inner_blocks, self.scope
        for number, (body, body_scope) in enumerate(inner):
            self.scope = body_scope
            self.write_block(body, depth + 1, number)
        self.scope = scope

    def write(self, node: ast.AST) -> None:
        """Write any syntax node."""
        kind = type(node)
        special = _SPECIAL.get(kind)
        if special is not None:
            special(self, node)
        else:
            self._write_plain(node, kind.__name__)

    def _write_plain(self, node: ast.AST, name: str) -> None:
        out = self.out
        out.append(f"({name}")
        for field in node._fields:
            if field not in _SKIPPED:
                self._write_part(getattr(node, field, None))
        out.append(")")

    def _write_part(self, value: object) -> None:
        if isinstance(value, ast.AST):
            self.write(value)
        elif not isinstance(value, list):
            self.out.append(f" {value!r}")
        elif value and isinstance(value[0], ast.stmt):
            self.out.append("{}")
            self.inner_blocks.append((value, self.scope))
        else:
            self.out.append("[")
            for item in value:
                self._write_part(item)
            self.out.append("]")

    def _write_name(self, node: ast.Name) -> None:
        self.out.append(f" {node.id}")
        if isinstance(node.ctx, ast.Load):
            self.scope.uses.append(NameUse((node.id,), False, node.lineno))
        else:
            self.scope.bind(node.id)

    def _write_attribute(self, node: ast.Attribute) -> None:
        chain = split_dotted_name(node)
        if chain:
            self.out.append(f" {'.'.join(chain)}")
            self.scope.uses.append(NameUse(chain, False, node.lineno))
        else:
            self.write(node.value)
            self.out.append(f".{node.attr}")

    def _write_constant(self, node: ast.Constant) -> None:
        self.out.append(f" {type(node.value).__name__}:{node.value!r}")

    def _write_call(self, node: ast.Call) -> None:
        self.out.append("(Call")
        chain = split_dotted_name(node.func)
        if chain:
            self.out.append(f" {'.'.join(chain)}")
            self.scope.uses.append(NameUse(chain, True, node.lineno))
        else:
            self.write(node.func)
        arguments = node.args
        if chain == ("getattr",) and len(arguments) > 1 and isinstance(arguments[1], ast.Constant):
            owner = split_dotted_name(arguments[0])
            if owner:  # getattr(helpers, "clean") is helpers.clean
                self.out.append(f" {'.'.join(owner)}")
                self.scope.uses.append(NameUse((*owner, str(arguments[1].value)), False, node.lineno))
                arguments = arguments[1:]
        self._write_part(arguments)
        self._write_part(node.keywords)
        self.out.append(")")

    def write_header(self, name: str, node: ast.arguments) -> None:
        """Write the first line of a function."""
        self.out.append(name)
        self._write_signature(node)

    def _write_signature(self, node: ast.arguments) -> None:
        """Write the names of the parameters, and bind them in the current scope."""
        self.out.append("(")
        for prefix, group in (("/", node.posonlyargs), ("", node.args), ("*", node.kwonlyargs)):
            self.out.append(prefix + ",".join(parameter.arg for parameter in group) + ";")
            self.scope.bound.update(parameter.arg for parameter in group)
        for prefix, variadic in (("*", node.vararg), ("**", node.kwarg)):
            if variadic is not None:
                self.out.append(prefix + variadic.arg)
                self.scope.bind(variadic.arg)
        self.out.append(")")

    def _write_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.out.append(f"({type(node).__name__} {node.name}")
        self.scope.bind(node.name)
        if self.skip_methods and self.scope is self.scopes[0]:
            self.out.append(")")
            return
        self._write_part(node.decorator_list)
        self._write_defaults(node.args)
        self.out.append(write_annotations(node))  # callers of the inner function may read them
        self.inner_blocks.append((node.body, self._enter_scope("function")))
        self._write_signature(node.args)
        self._leave_scope()
        self.out.append(")")

    def _write_lambda(self, node: ast.Lambda) -> None:
        self.out.append("(Lambda")
        self._write_defaults(node.args)
        self._enter_scope("function")
        self._write_signature(node.args)
        self.write(node.body)
        self._leave_scope()
        self.out.append(")")

    def _write_defaults(self, node: ast.arguments) -> None:
        self._write_part(node.defaults)
        self._write_part(node.kw_defaults)

    def _write_class(self, node: ast.ClassDef) -> None:
        self._write_part(node.decorator_list)
        self.scope.bind(node.name)
        self.write_class_header(node)
        self.inner_blocks.append((node.body, self._enter_scope("class")))
        self._leave_scope()

    def write_class_header(self, node: ast.ClassDef) -> None:
        """Write the first line of a class."""
        self.out.append(f"(ClassDef {node.name}")
        self._write_part(node.bases)
        self._write_part(node.keywords)
        self.out.append(")")

    def _write_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        self.out.append(f"({type(node).__name__}")
        self.write(node.generators[0].iter)  # the first iterable is evaluated in the outer scope
        self._enter_scope("comprehension")
        for number, generator in enumerate(node.generators):
            self.out.append(" async" if generator.is_async else " for")
            self.write(generator.target)
            if number:
                self.write(generator.iter)
            self._write_part(generator.ifs)
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                self._write_part(getattr(node, field))
        self._leave_scope()
        self.out.append(")")

    def _write_walrus(self, node: ast.NamedExpr) -> None:
        self.out.append(f"(NamedExpr {node.target.id}")
        self.scope.bind_walrus(node.target.id)
        self.write(node.value)
        self.out.append(")")

    def _bind_if_bare(self, node: ast.AnnAssign) -> bool:
        """Bind the target of an annotated assignment; return whether it only declares a local name, as in `x: int`."""
        if isinstance(node.target, ast.Name):
            self.scope.bind(node.target.id)
        return node.value is None and self.scope.kind != "class"

    def _write_annotated(self, node: ast.AnnAssign) -> None:
        if self.scope.kind == "class":  # such as fields of a dataclass
            self._write_plain(node, "AnnAssign")
            self.write(node.annotation)
        else:
            self.out.append("(Assign")
            self._write_part([node.target])
            self._write_part(node.value)
            self.out.append(")")

    def _write_import(self, node: ast.Import | ast.ImportFrom) -> None:
        self._write_plain(node, type(node).__name__)
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                imported_name = ImportedName(node.level, node.module or "", (alias.name,), node.lineno)
                name = alias.asname or alias.name
            else:
                imported_name = ImportedName(
                    0, alias.name if alias.asname else alias.name.partition(".")[0], (), node.lineno
                )
                name = alias.asname or alias.name.partition(".")[0]
            self.scope.bind(name)
            self.scope.imports[name] = imported_name

    def _write_scope_declaration(self, node: ast.Global | ast.Nonlocal) -> None:
        self._write_plain(node, type(node).__name__)
        (self.scope.globals if isinstance(node, ast.Global) else self.scope.nonlocals).update(node.names)

    def _write_capture(self, node: ast.AST) -> None:
        """Write syntax that binds a plain name: an except clause or a pattern."""
        self._write_plain(node, type(node).__name__)
        name = getattr(node, "rest", None) or getattr(node, "name", None)
        if name:
            self.scope.bind(name)

    def _enter_scope(self, kind: str) -> NameScope:
        self.scope = NameScope(kind, self.scope)  # type: ignore[arg-type]
        self.scopes.append(self.scope)
        return self.scope

    def _leave_scope(self) -> None:
        assert self.scope.parent is not None
        self.scope = self.scope.parent


_SPECIAL: dict[type[ast.AST], Callable[[SyntaxWriter, Any], None]] = {
    ast.Name: SyntaxWriter._write_name,
    ast.Attribute: SyntaxWriter._write_attribute,
    ast.Constant: SyntaxWriter._write_constant,
    ast.Call: SyntaxWriter._write_call,
    ast.FunctionDef: SyntaxWriter._write_function,
    ast.AsyncFunctionDef: SyntaxWriter._write_function,
    ast.Lambda: SyntaxWriter._write_lambda,
    ast.ClassDef: SyntaxWriter._write_class,
    ast.ListComp: SyntaxWriter._write_comprehension,
    ast.SetComp: SyntaxWriter._write_comprehension,
    ast.GeneratorExp: SyntaxWriter._write_comprehension,
    ast.DictComp: SyntaxWriter._write_comprehension,
    ast.NamedExpr: SyntaxWriter._write_walrus,
    ast.AnnAssign: SyntaxWriter._write_annotated,
    ast.Import: SyntaxWriter._write_import,
    ast.ImportFrom: SyntaxWriter._write_import,
    ast.Global: SyntaxWriter._write_scope_declaration,
    ast.Nonlocal: SyntaxWriter._write_scope_declaration,
    ast.ExceptHandler: SyntaxWriter._write_capture,
    ast.MatchAs: SyntaxWriter._write_capture,
    ast.MatchStar: SyntaxWriter._write_capture,
    ast.MatchMapping: SyntaxWriter._write_capture,
}
