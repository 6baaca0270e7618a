"""A piece of code without what has no effect: comments, formatting, docstrings, annotations of local names.

Pure: takes syntax trees. Each statement is told apart, so that a change can be pointed at; line numbers are kept for
people and never hashed.
"""

import ast
import hashlib
from dataclasses import dataclass
from functools import cached_property

from runnel.plan.fingerprint.code.canonical_writer import Writer, dotted, short, signature_annotations
from runnel.plan.fingerprint.code.free_names import Import, Load, free

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Statements = tuple[tuple[int, str], ...]  # line, short hash


@dataclass(frozen=True)
class Decorator:
    """One decorator: who decorates, and its code, which is read only where it counts."""

    callee: tuple[str, ...]
    node: ast.expr

    @cached_property
    def code(self) -> "Code":
        """Return its code."""
        return block_code(self.node)


@dataclass(frozen=True)
class Code:
    """What a block of code says. `annotations` are those of its signature, which a decorator may read."""

    hash: str
    statements: Statements
    loads: tuple[Load, ...]
    imports: tuple[Import, ...]
    annotations: str = ""
    decorators: tuple[Decorator, ...] = ()


def function_code(node: Function) -> Code:
    """Return a function's code without its decorators and the defaults, which are values of the function."""
    writer = Writer()
    if isinstance(node, ast.Lambda):
        writer.statement_of(node, lambda: writer.header("Lambda", node.args))
        writer.statement_of(node.body, lambda: writer.write(node.body))
        return _code(writer)
    writer.statement_of(node, lambda: writer.header(f"{type(node).__name__} {node.name}", node.args))
    writer.block(node.body, 1, 0)
    return _code(writer, signature_annotations(node), _decorators(node))


def class_code(node: ast.ClassDef) -> Code:
    """Return the body of a class without its methods: they are functions of their own."""
    writer = Writer("class", skip_methods=True)
    writer.statement_of(node, lambda: writer.class_header(node))
    writer.block(node.body, 1, 0)
    return _code(writer, decorators=_decorators(node))


def block_code(node: ast.Module | ast.stmt | ast.expr) -> Code:
    """Return a whole file, one statement or one expression."""
    writer = Writer()
    if isinstance(node, ast.Module):
        writer.block(node.body, 0, 0)
    elif isinstance(node, ast.stmt):
        writer.block([node], 0, 0)
    else:
        writer.statement_of(node, lambda: writer.write(node))
    return _code(writer)


def first_line(node: ast.AST) -> int:
    """Return the line where Python says that a function or class begins: that of its first decorator."""
    decorators = getattr(node, "decorator_list", None)
    line: int = decorators[0].lineno if decorators else node.lineno  # type: ignore[attr-defined]
    return line


def _code(writer: Writer, annotations: str = "", decorators: tuple[Decorator, ...] = ()) -> Code:
    loads, imports = free(writer.scopes)
    whole = "\n".join(text for _, text in writer.texts)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    return Code(
        digest, tuple((line, short(text)) for line, text in writer.texts), loads, imports, annotations, decorators
    )


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> tuple[Decorator, ...]:
    return tuple(
        Decorator(dotted(each.func if isinstance(each, ast.Call) else each), each) for each in node.decorator_list
    )
