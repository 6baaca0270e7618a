"""Every name that a query of Runnel's own uses, read off the source: what users may call columns all the same.

A name that a new query uses is found by itself: SQL aliases, relations, lambdas, names that are numbered on.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import runnel
from runnel.internal_names import ICEBERG_COLUMNS, INTERNAL_WORDS

_FOLDERS = ("connect", "lake", "query", "run", "testing")
_SQL = re.compile(r"\b(SELECT|FROM|JOIN|WHERE|AS|CASE|OVER|VALUES|lambda)\b|->")
_NAMES = (
    r'\bAS [`"]?([a-z_]\w*)',
    r'\b(?:TEMP TABLE|TEMP VIEW|JOIN|FROM|WITH|WHEN) [`"]?([a-z_]\w*)',
    r'\b([a-z_]\w*)\.[`"{\w]',
    r"lambda ([a-z_]\w*)",
    r"\b([a-z_]\w*) ->",
)
_OTHERS = (
    *("filename", "file_row_number", "file_index", "file_last_modified", "rowid", "input_file_name"),  # DuckDB's
    *(
        "_metadata",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
        "_rank",
        "file_path",
    ),  # Spark's, Iceberg's
    *("raw", "reason", "run", "path", "size", "sha256", "content", "blob", "modified_at", "unnest", "count", "sum"),
    *("_rescued_data", "window", "excluded", "target", "source", "runnel", "runnel:n", "runnel_side", "runnel_times"),
)


@cache
def query_names() -> tuple[str, ...]:
    """Return them, but for those that no column may have."""
    names = set(_OTHERS) | {f"runnel {word}" for word in INTERNAL_WORDS} | {"runnel slice 0"}
    root = Path(runnel.__file__).parent
    for folder in _FOLDERS:
        for path in (root / folder).rglob("*.py"):
            if "migrations" not in path.parts and path.name != "schema.py":
                names |= set(_names_in(ast.parse(path.read_text())))
    lower = {name.lower(): name for name in sorted(names)}
    return tuple(name for key, name in lower.items() if key not in ICEBERG_COLUMNS)


def _names_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            first, *rest = node.values
            if isinstance(first, ast.Constant) and len(rest) == 1 and re.fullmatch(r"[a-z]{1,2}", str(first.value)):
                yield from (f"{first.value}0", f"{first.value}1")
            yield from _names_of("".join(str(getattr(part, "value", "{}")) for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _names_of(node.value)
            if re.fullmatch(r"runnel_[a-z]+", node.value):
                yield node.value


def _names_of(text: str) -> Iterator[str]:
    if len(text) < 2000 and _SQL.search(text):
        for pattern in _NAMES:
            yield from re.findall(pattern, text)
