"""Parse source files, once for each content, and index their functions, classes and names.

Reads the project's files and the source of notebook cells; changes nothing.
"""

import ast
import linecache
import os
from collections.abc import Iterator
from types import CodeType

from runnel.declare.loading.compiled_files import compile_file
from runnel.plan.fingerprint.code.free_names import ImportedName
from runnel.plan.fingerprint.code.normalized_syntax import (
    FunctionNode,
    NormalizedCode,
    find_first_line,
    normalize_block,
    normalize_class,
    normalize_function,
)

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_cache: dict[str, tuple[tuple[int, int], "SourceIndex | None"]] = {}


class SourceIndex:
    """The indexed syntax of one file. Functions are found by their compiled code, so an edited file never matches."""

    def __init__(self, text: bytes, filename: str) -> None:
        compiled_file = compile_file(filename, text)
        self.tree = compiled_file.tree
        self.filename = filename
        self._functions: dict[tuple[str, int], list[FunctionNode]] = {}
        self._classes: dict[str, list[ast.ClassDef]] = {}
        self._code_objects: dict[tuple[str, int], list[CodeType]] = {}
        self._codes: dict[int, NormalizedCode] = {}
        self._bindings: dict[str, ast.stmt] | None = None
        self._has_lambdas = False
        self._index(self.tree.body, "")
        self._index_code_objects(compiled_file.code)

    def find_function(self, code: CodeType) -> FunctionNode | None:
        """Return the syntax of a function, or None if the file has changed it since it was loaded."""
        if code.co_name == "<lambda>" and not self._has_lambdas:
            self._index_lambdas()
        key = (code.co_name, code.co_firstlineno)
        nodes = self._functions.get(key, [])
        if not nodes or code not in self._code_objects.get(key, ()):
            return None
        return nodes[0] if len(nodes) == 1 else _find_enclosing_lambda(nodes, code)

    def find_classes(self, qualified: str) -> list[ast.ClassDef]:
        """Return the classes of a name: several if branches of an `if` define it differently."""
        return self._classes.get(qualified, [])

    def normalize_node(self, node: FunctionNode | ast.ClassDef | ast.Module | ast.stmt) -> NormalizedCode:
        """Return the normalized code of a node of this file."""
        code = self._codes.get(id(node))
        if code is None:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                code = normalize_function(node)
            else:
                code = normalize_class(node) if isinstance(node, ast.ClassDef) else normalize_block(node)
            self._codes[id(node)] = code
        return code

    def find_binding(self, name: str) -> ast.stmt | ImportedName | None:
        """Return the last statement that gives a name of the file its value, or the import that does."""
        if self._bindings is None:
            self._bindings = {
                bound_name: node for node in _iter_statements(self.tree.body) for bound_name in _iter_bound_names(node)
            }
        node = self._bindings.get(name)
        if isinstance(node, ast.ImportFrom):
            alias = next(alias for alias in node.names if (alias.asname or alias.name) == name)
            return ImportedName(node.level, node.module or "", (alias.name,), node.lineno)
        return node

    def iter_imports(self) -> Iterator[ImportedName]:
        """Yield the names of all import statements of the file, also nested ones."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (ImportedName(0, alias.name, (), node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (
                    ImportedName(node.level, node.module or "", (alias.name,), node.lineno) for alias in node.names
                )

    def _index(self, body: list[ast.stmt], prefix: str) -> None:
        for node in _iter_statements(body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._functions.setdefault((node.name, find_first_line(node)), []).append(node)
                self._index(node.body, f"{prefix}{node.name}.<locals>.")
            elif isinstance(node, ast.ClassDef):
                self._classes.setdefault(prefix + node.name, []).append(node)
                self._index(node.body, f"{prefix}{node.name}.")

    def _index_lambdas(self) -> None:
        self._has_lambdas = True
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Lambda):
                self._functions.setdefault(("<lambda>", node.lineno), []).append(node)

    def _index_code_objects(self, code: CodeType) -> None:
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._code_objects.setdefault((inner.co_name, inner.co_firstlineno), []).append(inner)
                self._index_code_objects(inner)


def load_source_index(filename: str) -> SourceIndex | None:
    """Return the index of a file, parsed again only if it changed, or None if it has no valid source."""
    try:
        stat = os.stat(filename)  # noqa: PTH116 - speed
        stamp = (stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError):
        stamp = (0, hash("".join(linecache.getlines(filename))))
    cached = _cache.get(filename)
    if cached is None or cached[0] != stamp:
        cached = _cache[filename] = (stamp, _read_source_index(filename))
    return cached[1]


def _read_source_index(filename: str) -> SourceIndex | None:
    try:
        with open(filename, "rb") as file:  # noqa: PTH123 - speed
            text = file.read()
    except (OSError, ValueError):
        text = "".join(linecache.getlines(filename)).encode()
    try:
        return SourceIndex(text, filename) if text else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def _iter_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of one scope, including those in branches and loops."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for block in _BLOCKS:
            for inner in getattr(node, block, ()):
                yield from _iter_statements([inner] if isinstance(inner, ast.stmt) else inner.body)


def _iter_bound_names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (name_node.id for name_node in ast.walk(target) if isinstance(name_node, ast.Name))


def _find_enclosing_lambda(nodes: list[FunctionNode], code: CodeType) -> FunctionNode:
    """Return the lambda of a line that has this code: the smallest one that encloses its instructions."""
    positions = [position for position in code.co_positions() if None not in position]
    starts = [(line, column) for line, _, column, _ in positions if column and line is not None]
    start = min(starts, default=(0, 0))

    def distance(node: FunctionNode) -> tuple[bool, int, int]:
        body = node.body if isinstance(node, ast.Lambda) else node
        body_start = (body.lineno, body.col_offset)
        return (body_start > start, abs(start[0] - body_start[0]), abs(start[1] - body_start[1]))

    return min(nodes, key=distance)
