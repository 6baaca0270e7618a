"""Text as Parquet: a row for each line, with its number. A line that is not in the encoding is a broken row."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from runnel.connect.files.compression import whole
from runnel.connect.files.file_patterns import File
from runnel.connect.files.parquet import BROKEN, MADE_HERE
from runnel.connect.files.scratch_files import Scratch, is_utf8, opened

_BATCH = 50_000
_BOM = b"\xef\xbb\xbf"


def parquet(file: File, scratch: Scratch, encoding: str) -> File:
    """Return a Parquet file with the columns `line` and `value`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not is_utf8(encoding, file):
        path = scratch.readable(file, encoding)
        file, encoding = scratch.instead(file, Path(path)), "utf-8"
    target = scratch.fresh("lines.parquet")
    kinds: dict[str, pa.DataType] = {"line": pa.int64(), "value": pa.string(), BROKEN: pa.string()}
    schema = pa.schema(kinds, metadata=MADE_HERE)
    with whole(file.name, file.path), opened(file) as stream, pq.ParquetWriter(target, schema) as writer:
        numbered = enumerate(stream, start=1)
        while batch := list(islice(numbered, _BATCH)):
            rows = list(_decoded(batch))
            writer.write_table(pa.table(list(map(list, zip(*rows, strict=True))), schema=schema))
    return scratch.instead(file, target)


def _decoded(lines: list[tuple[int, bytes]]) -> Iterator[tuple[int, str, str | None]]:
    for number, raw in lines:
        text = raw.rstrip(b"\r\n") if number > 1 else raw.removeprefix(_BOM).rstrip(b"\r\n")
        try:
            yield number, text.decode(), None
        except UnicodeDecodeError as error:
            why = f"byte 0x{text[error.start]:02x} at position {error.start} of the line is not UTF-8"
            yield number, text.decode(errors="replace"), why
