"""Parse and compile source files, once for each content, for importing and for later inspection.

Does not use Python's cache of compiled files, which misses a change of equal size within the same second.
"""

import ast
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True)
class CompiledFile:
    """A file's text as it was read, its syntax tree and its code object."""

    text: bytes
    tree: ast.Module
    code: CodeType


_cache: dict[str, CompiledFile] = {}


def compile_file(filename: str, text: bytes) -> CompiledFile:
    """Compile the text of a file, or return the cached result if the text is the same as before.

    Raises Python's own error, such as SyntaxError, if the source is invalid.
    """
    entry = _cache.get(filename)
    if entry is None or entry.text != text:
        tree = ast.parse(text, filename)
        entry = _cache[filename] = CompiledFile(text, tree, compile(tree, filename, "exec", dont_inherit=True))
    return entry


def cached_text(filename: str) -> bytes | None:
    """Return the text of a file as it was last compiled, or None if it never was."""
    entry = _cache.get(filename)
    return entry.text if entry else None


def cached_tree(filename: str) -> ast.Module | None:
    """Return the syntax tree of a file as it was last compiled, or None if it never was."""
    entry = _cache.get(filename)
    return entry.tree if entry else None
