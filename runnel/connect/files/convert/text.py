"""Convert text to Parquet: a row for each line, with its number. A line with invalid encoding is a broken row."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from runnel.connect.files.compression import describe_read_errors
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.parquet import BROKEN_COLUMN, CONVERTED_FILE_METADATA
from runnel.connect.files.scratch_files import ScratchFiles, is_utf8, open_file

_BATCH = 50_000
_BOM = b"\xef\xbb\xbf"


def to_parquet(file: LocalFile, scratch: ScratchFiles, encoding: str) -> LocalFile:
    """Convert a text file to Parquet with the columns `line` and `value`, and return the Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not is_utf8(encoding, file):
        path = scratch.make_readable(file, encoding)
        file, encoding = scratch.replace_file(file, Path(path)), "utf-8"
    target = scratch.new_path("lines.parquet")
    kinds: dict[str, pa.DataType] = {"line": pa.int64(), "value": pa.string(), BROKEN_COLUMN: pa.string()}
    schema = pa.schema(kinds, metadata=CONVERTED_FILE_METADATA)
    with (
        describe_read_errors(file.name, file.path),
        open_file(file) as stream,
        pq.ParquetWriter(target, schema) as writer,
    ):
        numbered = enumerate(stream, start=1)
        while batch := list(islice(numbered, _BATCH)):
            rows = list(_decode_lines(batch))
            writer.write_table(pa.table(list(map(list, zip(*rows, strict=True))), schema=schema))
    return scratch.replace_file(file, target)


def _decode_lines(lines: list[tuple[int, bytes]]) -> Iterator[tuple[int, str, str | None]]:
    for number, raw in lines:
        text = raw.rstrip(b"\r\n") if number > 1 else raw.removeprefix(_BOM).rstrip(b"\r\n")
        try:
            yield number, text.decode(), None
        except UnicodeDecodeError as error:
            why = f"byte 0x{text[error.start]:02x} at position {error.start} of the line is not UTF-8"
            yield number, text.decode(errors="replace"), why
