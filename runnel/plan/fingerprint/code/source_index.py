"""Source files, parsed once for each content, with an index of what stands in them.

Reads the project's files, and what a notebook keeps of its cells; changes nothing.
"""

import ast
import linecache
import os
from collections.abc import Iterator
from types import CodeType

from runnel.declare.loading.compiled_files import compiled
from runnel.plan.fingerprint.code.free_names import Import
from runnel.plan.fingerprint.code.normalized_syntax import (
    Code,
    Function,
    block_code,
    class_code,
    first_line,
    function_code,
)

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_known: dict[str, tuple[tuple[int, int], "SourceFile | None"]] = {}


class SourceFile:
    """One file's syntax. Functions are found by their compiled code, so that an edited file is never mistaken."""

    def __init__(self, text: bytes, filename: str) -> None:
        found = compiled(filename, text)
        self.tree = found.tree
        self.filename = filename
        self._functions: dict[tuple[str, int], list[Function]] = {}
        self._classes: dict[str, list[ast.ClassDef]] = {}
        self._compiled: dict[tuple[str, int], list[CodeType]] = {}
        self._codes: dict[int, Code] = {}
        self._bindings: dict[str, ast.stmt] | None = None
        self._has_lambdas = False
        self._index(self.tree.body, "")
        self._compile(found.code)

    def function(self, code: CodeType) -> Function | None:
        """Return the syntax of a function, or None where the file has it no longer as it was loaded."""
        if code.co_name == "<lambda>" and not self._has_lambdas:
            self._index_lambdas()
        key = (code.co_name, code.co_firstlineno)
        nodes = self._functions.get(key, [])
        if not nodes or code not in self._compiled.get(key, ()):
            return None
        return nodes[0] if len(nodes) == 1 else _narrowest(nodes, code)

    def classes(self, qualified: str) -> list[ast.ClassDef]:
        """Return the classes of that name: several where branches define it differently."""
        return self._classes.get(qualified, [])

    def code_of(self, node: Function | ast.ClassDef | ast.Module | ast.stmt) -> Code:
        """Return the code of something in this file."""
        known = self._codes.get(id(node))
        if known is None:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                known = function_code(node)
            else:
                known = class_code(node) if isinstance(node, ast.ClassDef) else block_code(node)
            self._codes[id(node)] = known
        return known

    def binding(self, name: str) -> ast.stmt | Import | None:
        """Return the statement that gives a name of the file its value: the last one, or what it imports."""
        if self._bindings is None:
            self._bindings = {found: node for node in _statements(self.tree.body) for found in _bound(node)}
        node = self._bindings.get(name)
        if isinstance(node, ast.ImportFrom):
            alias = next(alias for alias in node.names if (alias.asname or alias.name) == name)
            return Import(node.level, node.module or "", (alias.name,), node.lineno)
        return node

    def imports(self) -> Iterator[Import]:
        """Yield what import statements anywhere in the file name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (Import(0, alias.name, (), node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (Import(node.level, node.module or "", (alias.name,), node.lineno) for alias in node.names)

    def _index(self, body: list[ast.stmt], prefix: str) -> None:
        for node in _statements(body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._functions.setdefault((node.name, first_line(node)), []).append(node)
                self._index(node.body, f"{prefix}{node.name}.<locals>.")
            elif isinstance(node, ast.ClassDef):
                self._classes.setdefault(prefix + node.name, []).append(node)
                self._index(node.body, f"{prefix}{node.name}.")

    def _index_lambdas(self) -> None:
        self._has_lambdas = True
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Lambda):
                self._functions.setdefault(("<lambda>", node.lineno), []).append(node)

    def _compile(self, code: CodeType) -> None:
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._compiled.setdefault((inner.co_name, inner.co_firstlineno), []).append(inner)
                self._compile(inner)


def source_file(filename: str) -> SourceFile | None:
    """Return a file, parsed anew only when it changed, or None where there is no source or it is broken."""
    try:
        stat = os.stat(filename)  # noqa: PTH116 - speed
        stamp = (stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError):
        stamp = (0, hash("".join(linecache.getlines(filename))))
    known = _known.get(filename)
    if known is None or known[0] != stamp:
        known = _known[filename] = (stamp, _read(filename))
    return known[1]


def _read(filename: str) -> SourceFile | None:
    try:
        with open(filename, "rb") as file:  # noqa: PTH123 - speed
            text = file.read()
    except (OSError, ValueError):
        text = "".join(linecache.getlines(filename)).encode()
    try:
        return SourceFile(text, filename) if text else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of one scope, also those in branches and loops."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for block in _BLOCKS:
            for inner in getattr(node, block, ()):
                yield from _statements([inner] if isinstance(inner, ast.stmt) else inner.body)


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _narrowest(nodes: list[Function], code: CodeType) -> Function:
    """Return which of several lambdas of a line has this code: the smallest that encloses its instructions."""
    places = [place for place in code.co_positions() if None not in place]
    starts = [(line, column) for line, _, column, _ in places if column and line is not None]
    start = min(starts, default=(0, 0))

    def gap(node: Function) -> tuple[bool, int, int]:
        body = node.body if isinstance(node, ast.Lambda) else node
        at = (body.lineno, body.col_offset)
        return (at > start, abs(start[0] - at[0]), abs(start[1] - at[1]))

    return min(nodes, key=gap)
