"""Write records as JSON lines, and know them again by hashes."""

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from runnel.connect.feed.protocol import Part
from runnel.connect.http.record_extraction import Broken, look
from runnel.connect.http.watermark import rank

PART_BYTES = 64 * 2**20
_PLAIN = json.JSONEncoder(default=str, ensure_ascii=False)
_SORTED = json.JSONEncoder(default=str, ensure_ascii=False, sort_keys=True)


def line_of(record: Any, *, is_sorted: bool = False) -> bytes:
    """Return a record as a line of JSON. A number of more digits than a double has is a text: who reads rounds others.

    >>> from decimal import Decimal
    >>> line_of({"b": 1, "a": Decimal("0.10000000000000000001")}, is_sorted=True)
    b'{"a": "0.10000000000000000001", "b": 1}'
    """
    if isinstance(record, Broken):
        return record.text.encode()
    try:
        return (_SORTED if is_sorted else _PLAIN).encode(record).encode()
    except UnicodeEncodeError:  # JSON can spell halves of characters
        return json.dumps(record, default=str, sort_keys=is_sorted).encode()


def digest_of(record: Any) -> bytes:
    """Return what a record is, whatever the order of its keys."""
    return hashlib.sha256(line_of(record, is_sorted=True)).digest()


class Parts:
    """Files of JSON lines below a folder, begun anew when one is large. To be closed."""

    def __init__(self, folder: Path, name: str) -> None:
        """`name` is how people know the API."""
        self._folder = folder
        self._name = name
        self._pages: list[list[int]] = []
        self._out: IO[bytes] | None = None
        self._size = 0
        self.count = 0

    def add(self, record: Any, page: int) -> None:
        """Write a record."""
        if self._out is None or self._size >= PART_BYTES:
            self._begin(page)
        assert self._out is not None
        self._size += self._out.write(line_of(record) + b"\n")
        self._pages[-1][1] = page
        self.count += 1

    def close(self) -> None:
        """Close the file that is being written."""
        if self._out is not None:
            self._out.close()

    def made(self, losers: Sequence[int] = ()) -> tuple[Part, ...]:
        """Return the parts, without the records of these numbers, from 0 on in order. No more can be added."""
        self.close()
        if losers:
            self._drop(frozenset(losers))
        return tuple(
            Part(self._path(number), f"{self._name} page {first}" + (f" to {last}" if last > first else ""), "jsonl")
            for number, (first, last) in enumerate(self._pages)
        )

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:05}.jsonl"

    def _begin(self, page: int) -> None:
        self.close()
        self._out = self._path(len(self._pages)).open("wb")
        self._pages.append([page, page])
        self._size = 0

    def _drop(self, losers: frozenset[int]) -> None:
        count = 0
        for number in range(len(self._pages)):
            path = self._path(number)
            kept = path.with_suffix(".kept")
            with path.open("rb") as lines, kept.open("wb") as out:
                for line in lines:
                    if count not in losers:
                        out.write(line)
                    count += 1
            kept.replace(path)


class Newest:
    """Which record of each key is the newest. The keys are in a database of their own, on disk when there are many."""

    def __init__(self, key: Sequence[str], by: str | None) -> None:
        """Begin with none; `key` are names of fields, `by` that of one that grows: else the last is the newest."""
        self._key = key
        self._by = by
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("pragma journal_mode = off")
        self._db.execute("create table newest (key blob primary key, number integer, value text) without rowid")
        self._db.execute("begin")
        self.losers: list[int] = []

    def add(self, record: Any, number: int) -> None:
        """Let the record of this number take the place of an earlier one with its key, or lose against it."""
        if not isinstance(record, Mapping) or not self._key:
            return
        value = look(record, self._by)[1] if self._by else None
        names = {str(name).lower(): name for name in record}
        values = [record.get(name, record.get(names.get(name.lower()))) for name in self._key]
        key = hashlib.sha256(json.dumps([None if one is None else str(one) for one in values]).encode()).digest()[:16]
        row = (key, number, json.dumps(value, default=str))
        if self._db.execute("insert into newest values (?, ?, ?) on conflict do nothing", row).rowcount:
            return
        before, earlier = self._db.execute("select number, value from newest where key = ?", (key,)).fetchone()
        old, new = rank(json.loads(earlier)), rank(value)
        if old is not None and (new is None or new < old):
            self.losers.append(number)
            return
        self.losers.append(before)
        self._db.execute("replace into newest values (?, ?, ?)", row)

    def close(self) -> None:
        """Forget the keys."""
        self._db.close()
