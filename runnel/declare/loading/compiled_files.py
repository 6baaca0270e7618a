"""Source files, parsed and compiled once for each content: to import them, and to look into them afterwards.

Not through Python's cache of compiled files: it can't see a change of equal size within a second.
"""

import ast
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True)
class CompiledFile:
    """A file's text as it was read, its syntax, and what is executed."""

    text: bytes
    tree: ast.Module
    code: CodeType


_cache: dict[str, CompiledFile] = {}


def compile_file(filename: str, text: bytes) -> CompiledFile:
    """Return a text as the content of a file; what was compiled before is taken where it is the same text.

    Raises what Python raises for broken source.
    """
    entry = _cache.get(filename)
    if entry is None or entry.text != text:
        tree = ast.parse(text, filename)
        entry = _cache[filename] = CompiledFile(text, tree, compile(tree, filename, "exec", dont_inherit=True))
    return entry


def cached_text(filename: str) -> bytes | None:
    """Return the text of a file as it was last compiled, or None where it was not."""
    entry = _cache.get(filename)
    return entry.text if entry else None


def cached_tree(filename: str) -> ast.Module | None:
    """Return the syntax of a file as it was last compiled, or None where it was not."""
    entry = _cache.get(filename)
    return entry.tree if entry else None
