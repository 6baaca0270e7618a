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
_SPARK_FOLDERS = ("run", "testing")
_SQL = re.compile(r"\b(SELECT|FROM|JOIN|WHERE|AS|CASE|OVER|VALUES|lambda)\b|->")
_NAMES = (
    r'\bAS [`"]?([a-z_]\w*)',
    r'\b(?:TEMP TABLE|TEMP VIEW|JOIN|FROM|WITH|WHEN) [`"]?([a-z_]\w*)',
    r'\b([a-z_]\w*)\.[`"{\w]',
    r"lambda ([a-z_]\w*)",
    r"\b([a-z_]\w*) ->",
)
_NAMING = ("alias", "withColumn", "observe")
_SPARKS = ("_metadata", "_change_type", "_rank", "window", "raw", "reason", "run", "rows", "l", "r", "runnel_times")
_OTHERS = (
    *_SPARKS,
    *("filename", "file_row_number", "file_index", "file_last_modified", "rowid"),  # DuckDB's
    *(
        "_change_ordinal",
        "_commit_snapshot_id",
        "file_path",
        "path",
        "size",
        "sha256",
        "content",
        "blob",
        "modified_at",
    ),
    *("unnest", "count", "sum", "excluded", "target", "source", "runnel", "runnel:n", "runnel_side", "one", "two"),
)


def query_names() -> tuple[str, ...]:
    """Return them, but for those that no column may have."""
    return _sorted({*_OTHERS, *(f"runnel {word}" for word in INTERNAL_WORDS)} | _names_below(_FOLDERS))


def spark_names() -> tuple[str, ...]:
    """Return those that matter to Spark only: wide tables take it long."""
    texts = [text for text in _texts(_SPARK_FOLDERS) if "import internal_column" in text]
    words = {word for word in INTERNAL_WORDS if any(f'"{word}"' in text for text in texts)}
    return _sorted({*_SPARKS, "runnel slice 0", *(f"runnel {word}" for word in words)} | _names_below(_SPARK_FOLDERS))


def _sorted(names: set[str]) -> tuple[str, ...]:
    return tuple({name.lower(): name for name in sorted(names) if name.lower() not in ICEBERG_COLUMNS}.values())


@cache
def _texts(folders: tuple[str, ...]) -> tuple[str, ...]:
    root = Path(runnel.__file__).parent
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    return tuple(path.read_text() for path in paths if "migrations" not in path.parts and path.name != "schema.py")


def _names_below(folders: tuple[str, ...]) -> set[str]:
    return {name for text in _texts(folders) for name in _names_in(ast.parse(text))}


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
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _NAMING:
            yield from (str(given.value) for given in node.args[:1] if isinstance(given, ast.Constant))


def _names_of(text: str) -> Iterator[str]:
    if len(text) < 2000 and _SQL.search(text):
        for pattern in _NAMES:
            yield from re.findall(pattern, text)
