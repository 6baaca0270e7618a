"""Avro as Parquet, with its logical types. The schema is the one in the file."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from runnel.connect.files.convert.converted_path import parquet_path
from runnel.connect.files.file_patterns import File
from runnel.connect.files.scratch_files import Scratch
from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.connect.files.avro_types import Columns

_BATCH = 50_000


def parquet(file: File, scratch: Scratch) -> File:
    """Return a Parquet file in the place of one of Avro."""
    import fastavro
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = parquet_path(file, scratch)
    try:
        with open(file.path, "rb") as stream:  # noqa: PTH123
            reader = fastavro.reader(stream)
            columns = _columns(file, reader.writer_schema)
            with pq.ParquetWriter(target, columns.schema, compression="zstd") as writer:
                for rows in _batches(reader, columns):
                    writer.write_table(pa.Table.from_pylist(rows, columns.schema))
    except Mistake:
        raise
    except (EOFError, ValueError, TypeError, KeyError, IndexError, OSError, OverflowError, pa.ArrowException) as error:
        why = "it ends too early" if isinstance(error, EOFError) else str(error) or type(error).__name__
        what = f"{file.name} is not a whole Avro file: {why.splitlines()[0]}"
        raise Mistake("LOAD_NOT_AVRO", what, at=file.name, fix="copy or write it again") from error
    return scratch.instead(file, target)


def _batches(rows: Iterator[Any], columns: "Columns") -> Iterator[list[dict[str, Any]]]:
    while batch := [columns.fit(row) for row in islice(rows, _BATCH)]:
        yield batch


def _columns(file: File, schema: Any) -> "Columns":
    from runnel.connect.files.avro_types import Columns

    if not isinstance(schema, dict) or schema.get("type") != "record":
        what = f"{file.name} has values that are no records"
        raise Mistake("LOAD_NOT_AVRO", what, at=file.name, fix="write records")
    return Columns(schema)
