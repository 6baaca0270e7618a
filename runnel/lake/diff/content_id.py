"""What makes the contents of two versions equal, as text that can be computed without reading them.

Pure. `files:` contents are sums over the files that were ingested, so that a change costs as much as the change and
A, then B, then A again is A. `rows:` contents are sums over the rows. `changes:` contents are those of a log and how it
is applied. Anything else is a version's own location.
"""

import hashlib
from collections.abc import Iterable

_FILES = "files:"
_ROWS = "rows:"
_CHANGES = "changes:"
_BITS = 128


def of_files(before: str | None, added: Iterable[str], removed: Iterable[str] = ()) -> str:
    """Return the content after ingested files, known by their identities, came and went.

    >>> one = of_files(None, ["a"])
    >>> of_files(of_files(one, ["b"]), [], ["b"]) == one
    True
    """
    total = _number(before) + sum(_hash(text) for text in added) - sum(_hash(text) for text in removed)
    return f"{_FILES}{total % 2**_BITS:032x}"


def of_rows(columns: str, count: int, *sums: int) -> str:
    """Return the content of a table with these columns, from its number of rows and sums of two hashes over them.

    >>> of_rows("id bigint", 2, 5, 7) == of_rows("id bigint", 2, 5, 7)
    True
    """
    return _ROWS + hashlib.sha256(repr((columns, count, sums)).encode()).hexdigest()[:40]


def is_location(content: str) -> bool:
    """Tell whether a content is just a version's own location.

    >>> is_location("files:0a"), is_location("rows:0a"), is_location("/lake/ods/a/metadata/1.metadata.json")
    (False, False, True)
    """
    return not content.startswith((_FILES, _ROWS, _CHANGES))


def is_sum(content: str) -> bool:
    """Tell whether a content is the sum of files that were ingested."""
    return content.startswith(_FILES)


def _number(content: str | None) -> int:
    if content is None:
        return 0
    if content.startswith(_FILES):
        return int(content.removeprefix(_FILES), 16)
    return _hash(content)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[: _BITS // 8])
