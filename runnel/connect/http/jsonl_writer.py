"""Write records as JSON lines, and recognize repeated ones by their hashes."""

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from runnel.connect.files.fetched_file import FetchedFile
from runnel.connect.http.record_extraction import InvalidLine, find_path
from runnel.connect.http.watermark import rank_value

PART_BYTES = 64 * 2**20
_PLAIN = json.JSONEncoder(default=str, ensure_ascii=False)
_SORTED = json.JSONEncoder(default=str, ensure_ascii=False, sort_keys=True)


def encode_record(record: Any, *, is_sorted: bool = False) -> bytes:
    """Return a record as a line of JSON. A number with more digits than a double holds becomes a string, unrounded.

    >>> from decimal import Decimal
    >>> encode_record({"b": 1, "a": Decimal("0.10000000000000000001")}, is_sorted=True)
    b'{"a": "0.10000000000000000001", "b": 1}'
    """
    if isinstance(record, InvalidLine):
        return record.text.encode()
    try:
        return (_SORTED if is_sorted else _PLAIN).encode(record).encode()
    except UnicodeEncodeError:  # JSON can escape lone surrogates, which UTF-8 can't encode
        return json.dumps(record, default=str, sort_keys=is_sorted).encode()


def hash_record(record: Any) -> bytes:
    """Return a hash of a record that does not depend on the order of its keys."""
    return hashlib.sha256(encode_record(record, is_sorted=True)).digest()


class JsonlPartWriter:
    """Writes files of JSON lines into a folder, a new one when the current one is large. Must be closed."""

    def __init__(self, folder: Path, name: str) -> None:
        """Write into `folder`; `name` is what messages call the API."""
        self._folder = folder
        self._name = name
        self._pages: list[list[int]] = []
        self._file: IO[bytes] | None = None
        self._size = 0
        self.count = 0

    def add(self, record: Any, page: int) -> None:
        """Write a record."""
        if self._file is None or self._size >= PART_BYTES:
            self._start_part(page)
        assert self._file is not None
        self._size += self._file.write(encode_record(record) + b"\n")
        self._pages[-1][1] = page
        self.count += 1

    def close(self) -> None:
        """Close the file that is being written."""
        if self._file is not None:
            self._file.close()

    def finish(self, superseded: Sequence[int] = ()) -> tuple[FetchedFile, ...]:
        """Return the written files without the superseded records (numbers from 0). Nothing can be added afterwards."""
        self.close()
        if superseded:
            self._drop_records(frozenset(superseded))
        return tuple(
            FetchedFile(
                self._part_path(number), f"{self._name} page {first}" + (f" to {last}" if last > first else ""), "jsonl"
            )
            for number, (first, last) in enumerate(self._pages)
        )

    def _part_path(self, number: int) -> Path:
        return self._folder / f"{number:05}.jsonl"

    def _start_part(self, page: int) -> None:
        self.close()
        self._file = self._part_path(len(self._pages)).open("wb")
        self._pages.append([page, page])
        self._size = 0

    def _drop_records(self, superseded: frozenset[int]) -> None:
        record_number = 0
        for number in range(len(self._pages)):
            path = self._part_path(number)
            rewritten_path = path.with_suffix(".kept")
            with path.open("rb") as lines, rewritten_path.open("wb") as out:
                for line in lines:
                    if record_number not in superseded:
                        out.write(line)
                    record_number += 1
            rewritten_path.replace(path)


class NewestRecords:
    """Finds the newest record of each key. The keys are in a temporary SQLite database, on disk if there are many."""

    def __init__(self, key: Sequence[str], order_field: str | None) -> None:
        """`key` are names of fields. `order_field` is a field that grows; without one the last record is the newest."""
        self._key = key
        self._order_field = order_field
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("pragma journal_mode = off")
        self._db.execute("create table newest (key blob primary key, number integer, value text) without rowid")
        self._db.execute("begin")
        self.superseded: list[int] = []

    def add(self, record: Any, number: int) -> None:
        """Let this record supersede an earlier one with its key, or be superseded by it."""
        if not isinstance(record, Mapping) or not self._key:
            return
        value = find_path(record, self._order_field)[1] if self._order_field else None
        names = {str(name).lower(): name for name in record}
        values = [record.get(name, record.get(names.get(name.lower()))) for name in self._key]
        key = hashlib.sha256(
            json.dumps([None if key_value is None else str(key_value) for key_value in values]).encode()
        ).digest()[:16]
        row = (key, number, json.dumps(value, default=str))
        if self._db.execute("insert into newest values (?, ?, ?) on conflict do nothing", row).rowcount:
            return
        earlier_number, earlier_value = self._db.execute(
            "select number, value from newest where key = ?", (key,)
        ).fetchone()
        old_rank, new_rank = rank_value(json.loads(earlier_value)), rank_value(value)
        if old_rank is not None and (new_rank is None or new_rank < old_rank):
            self.superseded.append(number)
            return
        self.superseded.append(earlier_number)
        self._db.execute("replace into newest values (?, ?, ?)", row)

    def close(self) -> None:
        """Close the temporary database."""
        self._db.close()
