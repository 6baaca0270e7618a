"""Compute content ids: texts that are equal if two versions of a table have equal contents.

Pure. A `files:` content is a sum over the ingested files, so that updating it costs as much as the change, and adding
and then removing a file restores it. A `rows:` content is a sum over the rows. A `changes:` content identifies a change
log and how it is applied. Anything else is a version's own location.
"""

import hashlib
from collections.abc import Iterable

_FILES_PREFIX = "files:"
_ROWS_PREFIX = "rows:"
_CHANGES_PREFIX = "changes:"
_HASH_BITS = 128


def content_of_files(before: str | None, added: Iterable[str], removed: Iterable[str] = ()) -> str:
    """Return the content after ingested files, given by their identities, were added and removed.

    >>> content = content_of_files(None, ["a"])
    >>> content_of_files(content_of_files(content, ["b"]), [], ["b"]) == content
    True
    """
    total = _to_number(before) + sum(_hash_text(text) for text in added) - sum(_hash_text(text) for text in removed)
    return f"{_FILES_PREFIX}{total % 2**_HASH_BITS:032x}"


def content_of_rows(columns: str, count: int, *sums: int) -> str:
    """Return the content of a table with these columns, from its row count and the sums of two hashes of its rows.

    >>> content_of_rows("id bigint", 2, 5, 7) == content_of_rows("id bigint", 2, 5, 7)
    True
    """
    return _ROWS_PREFIX + hashlib.sha256(repr((columns, count, sums)).encode()).hexdigest()[:40]


def is_location(content: str) -> bool:
    """Return whether a content is just a version's own location.

    >>> is_location("files:0a"), is_location("rows:0a"), is_location("/lake/ods/a/metadata/1.metadata.json")
    (False, False, True)
    """
    return not content.startswith((_FILES_PREFIX, _ROWS_PREFIX, _CHANGES_PREFIX))


def is_file_sum(content: str) -> bool:
    """Return whether a content is the sum of files that were ingested."""
    return content.startswith(_FILES_PREFIX)


def _to_number(content: str | None) -> int:
    if content is None:
        return 0
    if content.startswith(_FILES_PREFIX):
        return int(content.removeprefix(_FILES_PREFIX), 16)
    return _hash_text(content)


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[: _HASH_BITS // 8])
