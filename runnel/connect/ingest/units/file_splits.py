"""Make a range of a large file readable by itself: copy its lines, or choose its row groups.

Of an object, only the bytes of the range are fetched. What can't be read in splits raises NotSplittable.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from runnel.connect.files import jsonl
from runnel.connect.files.compression import describe_read_errors
from runnel.connect.files.csv_text.csv_header import inspect_header
from runnel.connect.files.csv_text.csv_records import read_records
from runnel.connect.files.csv_text.dialect_detection import check_delimiter, check_encoding
from runnel.connect.files.file_patterns import CSV, PARQUET, FileSplit, KeyOrder, LocalFile
from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.files.json_structure import HEAD_BYTES, read_key_order
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.parquet import ROW_NUMBER
from runnel.connect.ingest.detect.listing import is_object_url
from runnel.connect.ingest.units.file_unit import ByteRange
from runnel.connect.ingest.units.line_ranges import LineCounts, NotSplittable, count_lines, find_lines, read_chunks

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_LONGEST_HEAD = 16 << 20
_FOOTER_END = 8  # bytes after the footer of a Parquet file: its length, and a mark
_MARK = b"PAR1"


@dataclass(frozen=True)
class OpenedSplit:
    """A range of a file that can be read as a file of its own, None if no row begins in it; `counts` are its lines."""

    file: LocalFile | None
    counts: LineCounts = field(default_factory=LineCounts)


@dataclass(frozen=True)
class SplitOpener:
    """Opens ranges of the files of a request; copies go below `folder`."""

    request: LoadRequest
    storage: Mapping[str, str]
    folder: Path

    def open(self, file: LocalFile, byte_range: ByteRange) -> OpenedSplit:
        """Return a range of a file, which can be read."""
        with self._open_stream(file) as stream:
            if self.request.format == PARQUET:
                return self._open_row_groups(file, byte_range, stream)
            if self.request.format == CSV:
                return self._open_csv(file, byte_range, stream)
            text = stream.read(HEAD_BYTES)
            jsonl.check_json_lines(LocalFile(file.name, str(self._write_copy(file, "head", text)), 0, 0.0))
            key_order = read_key_order(text, self.request.document.encoding)
            return self._copy_lines(file, byte_range, stream, _Header(b"", 0, 0), key_order)

    def _open_stream(self, file: LocalFile) -> "AbstractContextManager[IO[bytes]]":
        if is_object_url(file.path):
            from runnel.connect.ingest.detect.object_listing import open_object

            return open_object(file.path, self.storage)
        return _open_local(file)

    def _open_csv(self, file: LocalFile, byte_range: ByteRange, stream: IO[bytes]) -> OpenedSplit:
        options = self.request.csv
        size = HEAD_BYTES
        while True:
            stream.seek(0)
            text = stream.read(size)
            is_whole = len(text) < size
            lines = text if is_whole else text[: text.rfind(b"\n") + 1]
            head = replace(file, path=str(self._write_copy(file, f"head{size}", lines)))
            records = list(islice(read_records(head, options), 2)) if lines else []
            if is_whole or len(records) > 1:
                break
            size *= 2
            if size > _LONGEST_HEAD:
                raise NotSplittable
        check_encoding(head, options)
        check_delimiter(head, options)
        return self._copy_lines(file, byte_range, stream, _find_header(head, lines, options))

    def _copy_lines(
        self,
        file: LocalFile,
        byte_range: ByteRange,
        stream: IO[bytes],
        header: "_Header",
        key_order: KeyOrder = (),
    ) -> OpenedSplit:
        """Copy the lines of a range, after the header of the file.

        The lines are counted only while ranges are inspected; then those of CSV are not copied.
        """
        span = find_lines(stream, byte_range.start, byte_range.end, file.bytes)
        begin = min(max(span.begin, header.end), span.end)
        counts = count_lines(read_chunks(stream, span.begin, begin))
        split = FileSplit(
            lines_before=(byte_range.lines_before or 0) + counts.lines,
            bytes_before=begin - len(header.text) - header.removed_bytes,
            header_lines=header.text.count(b"\n"),
            header=header.names,
            key_order=key_order,
        )
        path = self._write_copy(file, "split", header.text)
        if byte_range.lines_before is not None or self.request.format != CSV:
            _copy_bytes(stream, begin, span.end, path)
        if byte_range.lines_before is None:
            counts += count_lines(read_chunks(stream, begin, span.end))
        if counts.lone and self.request.format == CSV:
            raise NotSplittable  # a line of CSV may end with a carriage return, too
        is_empty = begin == span.end and not header.text
        return OpenedSplit(None if is_empty else replace(file, path=str(path), split=split), counts)

    def _open_row_groups(self, file: LocalFile, byte_range: ByteRange, stream: IO[bytes]) -> OpenedSplit:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            metadata = pq.read_metadata(stream)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise NotSplittable from error
        names = [name.lower() for name in metadata.schema.to_arrow_schema().names]
        if ROW_NUMBER in names or not names:
            raise NotSplittable
        numbers = [n for n in range(metadata.num_row_groups) if _has_middle_in(metadata.row_group(n), byte_range)]
        if not numbers:
            return OpenedSplit(None)
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise NotSplittable
        row_counts = [metadata.row_group(number).num_rows for number in range(numbers[-1] + 1)]
        split = FileSplit(first_row=sum(row_counts[: numbers[0]]), end_row=sum(row_counts))
        path = file.path
        if is_object_url(path):
            path = str(self._copy_row_groups(file, stream, [metadata.row_group(number) for number in numbers]))
        return OpenedSplit(replace(file, path=path, split=split))

    def _copy_row_groups(self, file: LocalFile, stream: IO[bytes], row_groups: "list[pq.RowGroupMetaData]") -> Path:
        """Return a file with the footer and some row groups of another file, each where it is there."""
        stream.seek(file.bytes - _FOOTER_END)
        footer_bytes = int.from_bytes(stream.read(4), "little") + _FOOTER_END
        path = self._write_copy(file, "split", _MARK)
        spans = [span for row_group in row_groups for span in _list_column_spans(row_group)]
        for begin, end in [*spans, (file.bytes - footer_bytes, file.bytes)]:
            _copy_bytes(stream, begin, end, path, begin)
        return path

    def _write_copy(self, file: LocalFile, name: str, text: bytes) -> Path:
        """Write a file with the extension of another one, below the Hive-style folders of its path."""
        *folders, last = file.path.split("/")
        path = self.folder.joinpath(name, *(folder for folder in folders if "=" in folder), last)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        return path


@dataclass(frozen=True)
class _Header:
    """What a copy of a range begins with. `end` is where the rows begin in the whole file.

    `removed_bytes` are those before the header, if a whole file is copied without them before it is read.
    """

    text: bytes
    end: int
    removed_bytes: int
    names: tuple[str, ...] = ()


def _find_header(head: LocalFile, text: bytes, options: CsvOptions) -> _Header:
    """Return the header of the CSV file that starts with `head`, whose contents are `text`."""
    header = inspect_header(head, options)
    if any(line.endswith(b"\r") for line in text.splitlines(keepends=True)):
        raise NotSplittable
    lines = text.split(b"\n")
    if not options.header:
        end = _measure(lines, options.skip, len(text))
        return _Header(b"", end, end if header.needs_copy else 0, header.names)
    record = next(read_records(head, options))
    if record.last_line > record.line:
        raise NotSplittable
    begin, end = (_measure(lines, count, len(text)) for count in (record.line - 1, record.line))
    return _Header(text[begin:end], end, begin if header.needs_copy else 0, header.names)


def _measure(lines: list[bytes], count: int, most: int) -> int:
    """Return how many bytes the first lines have, each with its line feed."""
    return min(sum(len(line) + 1 for line in lines[:count]), most)


def _copy_bytes(stream: IO[bytes], begin: int, end: int, path: Path, target: int | None = None) -> None:
    """Write some bytes to an existing file, from the position `target` on, else to its end."""
    with path.open("r+b") as out:
        out.seek(0, os.SEEK_END) if target is None else out.seek(target)
        for chunk in read_chunks(stream, begin, end):
            out.write(chunk)


@contextmanager
def _open_local(file: LocalFile) -> Iterator[IO[bytes]]:
    with describe_read_errors(file.name, file.path), Path(file.path).open("rb") as stream:
        yield cast(IO[bytes], stream)


def _has_middle_in(row_group: "pq.RowGroupMetaData", byte_range: ByteRange) -> bool:
    spans = _list_column_spans(row_group)
    begin, end = min(begin for begin, _ in spans), max(end for _, end in spans)
    return byte_range.start <= (begin + end) // 2 < byte_range.end


def _list_column_spans(row_group: "pq.RowGroupMetaData") -> list[tuple[int, int]]:
    """Return where the bytes of each column are."""
    columns = [row_group.column(number) for number in range(row_group.num_columns)]
    starts = [
        min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset) for column in columns
    ]
    return [(start, start + column.total_compressed_size) for start, column in zip(starts, columns, strict=True)]
