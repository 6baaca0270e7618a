"""Source files, parsed and compiled once for each content: to import them, and to look into them afterwards.

Not through Python's cache of compiled files: it can't see a change of equal size within a second.
"""

import ast
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True)
class Compiled:
    """A file's text as it was read, its syntax, and what is executed."""

    text: bytes
    tree: ast.Module
    code: CodeType


_known: dict[str, Compiled] = {}


def compiled(filename: str, text: bytes) -> Compiled:
    """Return a text as the content of a file; what was compiled before is taken where it is the same text.

    Raises what Python raises for broken source.
    """
    found = _known.get(filename)
    if found is None or found.text != text:
        tree = ast.parse(text, filename)
        found = _known[filename] = Compiled(text, tree, compile(tree, filename, "exec", dont_inherit=True))
    return found


def text_of(filename: str) -> bytes | None:
    """Return the text of a file as it was last compiled, or None where it was not."""
    found = _known.get(filename)
    return found.text if found else None


def tree_of(filename: str) -> ast.Module | None:
    """Return the syntax of a file as it was last compiled, or None where it was not."""
    found = _known.get(filename)
    return found.tree if found else None
