"""Normalize code: drop what has no effect, such as comments, formatting, docstrings, annotations of local names.

Pure: takes syntax trees. Each statement is hashed separately, so that a message can name the changed line; line numbers
are kept for people and never hashed.
"""

import ast
import hashlib
from dataclasses import dataclass
from functools import cached_property

from runnel.plan.fingerprint.code.canonical_writer import (
    SyntaxWriter,
    hash_statement,
    split_dotted_name,
    write_annotations,
)
from runnel.plan.fingerprint.code.free_names import ImportedName, NameUse, find_free_names

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Statements = tuple[tuple[int, str], ...]  # line, short hash


@dataclass(frozen=True)
class Decorator:
    """One decorator: its name, and its code, which is normalized only when needed."""

    callee: tuple[str, ...]
    node: ast.expr

    @cached_property
    def code(self) -> "NormalizedCode":
        """Return the normalized code of the decorator."""
        return normalize_block(self.node)


@dataclass(frozen=True)
class NormalizedCode:
    """A normalized block of code. `annotations` are those of its signature, which a decorator may read."""

    hash: str
    statements: Statements
    uses: tuple[NameUse, ...]
    imports: tuple[ImportedName, ...]
    annotations: str = ""
    decorators: tuple[Decorator, ...] = ()


def normalize_function(node: FunctionNode) -> NormalizedCode:
    """Normalize a function, without its decorators and its defaults, which are values of the function."""
    writer = SyntaxWriter()
    if isinstance(node, ast.Lambda):
        writer.write_statement(node, lambda: writer.write_header("Lambda", node.args))
        writer.write_statement(node.body, lambda: writer.write(node.body))
        return _build_code(writer)
    writer.write_statement(node, lambda: writer.write_header(f"{type(node).__name__} {node.name}", node.args))
    writer.write_block(node.body, 1, 0)
    return _build_code(writer, write_annotations(node), _list_decorators(node))


def normalize_class(node: ast.ClassDef) -> NormalizedCode:
    """Normalize the body of a class, without its methods, which are separate code units."""
    writer = SyntaxWriter("class", skip_methods=True)
    writer.write_statement(node, lambda: writer.write_class_header(node))
    writer.write_block(node.body, 1, 0)
    return _build_code(writer, decorators=_list_decorators(node))


def normalize_block(node: ast.Module | ast.stmt | ast.expr) -> NormalizedCode:
    """Normalize a whole file, one statement or one expression."""
    writer = SyntaxWriter()
    if isinstance(node, ast.Module):
        writer.write_block(node.body, 0, 0)
    elif isinstance(node, ast.stmt):
        writer.write_block([node], 0, 0)
    else:
        writer.write_statement(node, lambda: writer.write(node))
    return _build_code(writer)


def find_first_line(node: ast.AST) -> int:
    """Return the line where a function or class begins for Python: that of its first decorator, if it has one."""
    decorators = getattr(node, "decorator_list", None)
    line: int = decorators[0].lineno if decorators else node.lineno  # type: ignore[attr-defined]
    return line


def _build_code(writer: SyntaxWriter, annotations: str = "", decorators: tuple[Decorator, ...] = ()) -> NormalizedCode:
    uses, imports = find_free_names(writer.scopes)
    full_text = "\n".join(text for _, text in writer.statement_texts)
    digest = hashlib.sha256(full_text.encode("utf-8", "surrogatepass")).hexdigest()
    return NormalizedCode(
        digest,
        tuple((line, hash_statement(text)) for line, text in writer.statement_texts),
        uses,
        imports,
        annotations,
        decorators,
    )


def _list_decorators(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> tuple[Decorator, ...]:
    return tuple(
        Decorator(split_dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator), decorator)
        for decorator in node.decorator_list
    )
