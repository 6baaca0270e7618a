"""Pieces of large objects: only the bytes of a range are fetched."""

from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.ingest.detect import object_listing
from runnel.connect.ingest.read_request import build_files_request
from runnel.connect.ingest.units.file_splits import SplitOpener
from runnel.connect.ingest.units.file_unit import ByteRange
from runnel.declare.model.endpoints import Files
from tests.connect.ingest.file_source import ORDERS
from tests.servers.s3 import Store as Objects

ROWS = 40_000


class CountedReads:
    """Counts the bytes that are read of objects, which are the real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        open_file_system = object_listing.open_file_system

        def open_counted(address: str, storage: Any) -> Any:
            file_system, path = open_file_system(address, storage)
            return CountedFileSystem(file_system, self), path

        monkeypatch.setattr(object_listing, "open_file_system", open_counted)


class CountedFileSystem:
    def __init__(self, file_system: Any, reads: CountedReads) -> None:
        self.file_system, self.reads = file_system, reads

    def open_input_file(self, path: str) -> IO[bytes]:
        stream, reads = self.file_system.open_input_file(path), self.reads
        return pa.PythonFile(CountedStream(stream, reads), mode="r")  # type: ignore[return-value]


class CountedStream:
    def __init__(self, stream: Any, reads: CountedReads) -> None:
        self.stream, self.reads = stream, reads

    def read(self, size: int = -1) -> bytes:
        text = self.stream.read(size)
        self.reads.bytes += len(text)
        return text

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def open_middle(s3: Objects, key: str, contents: bytes, origin: Files, folder: Path) -> LocalFile:
    """Put an object, and return its middle third."""
    s3.put(key, contents)
    third = len(contents) // 3
    file = LocalFile(key, f"s3://{s3.bucket}/{key}", len(contents), 0.0)
    opener = SplitOpener(build_files_request(ORDERS, origin, [file]), s3.storage, folder)
    split = opener.open(file, ByteRange(third, 2 * third, lines_before=5)).file
    assert split is not None
    return split


def test_lines_of_an_object(s3: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = CountedReads(monkeypatch)
    contents = b"".join(b'{"id": %d}\n' % number for number in range(5 * ROWS))
    split = open_middle(s3, "splits/a.jsonl", contents, Files("*", "jsonl"), tmp_path)
    lines = Path(split.path).read_bytes()
    assert lines in contents
    assert abs(len(lines) - len(contents) // 3) < 20
    assert reads.bytes < len(contents) * 0.66


def test_row_groups_of_an_object(s3: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"id": list(range(ROWS)), "text": [f"text {number * 7919}" for number in range(ROWS)]})
    pq.write_table(table, tmp_path / "all.parquet", row_group_size=4000)
    contents = (tmp_path / "all.parquet").read_bytes()
    reads = CountedReads(monkeypatch)
    split = open_middle(s3, "splits/day=1/a.parquet", contents, Files("*", "parquet"), tmp_path)
    assert reads.bytes < len(contents) * 0.66
    assert split.path.endswith("/day=1/a.parquet")
    assert split.split is not None
    first, end = split.split.first_row, split.split.end_row
    assert 2 * 4000 <= end - first <= 4 * 4000
    groups = [number for number in range(10) if first <= number * 4000 < end]
    assert pq.ParquetFile(split.path).read_row_groups(groups).equals(table.slice(first, end - first))
