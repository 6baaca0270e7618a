"""Convert Avro to Parquet, with its logical types. The schema is the one in the file."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.connect.files.convert.avro_types import AvroColumns

_BATCH = 50_000


def to_parquet(file: LocalFile, scratch: ScratchFiles) -> LocalFile:
    """Convert an Avro file to Parquet and return the Parquet file."""
    import fastavro
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = scratch.new_parquet_path(file)
    try:
        with open(file.path, "rb") as stream:  # noqa: PTH123
            reader = fastavro.reader(stream)
            columns = _parse_columns(file, reader.writer_schema)
            with pq.ParquetWriter(target, columns.schema, compression="zstd") as writer:
                for rows in _read_batches(reader, columns):
                    writer.write_table(pa.Table.from_pylist(rows, columns.schema))
    except Mistake:
        raise
    except (EOFError, ValueError, TypeError, KeyError, IndexError, OSError, OverflowError, pa.ArrowException) as error:
        why = "it ends too early" if isinstance(error, EOFError) else str(error) or type(error).__name__
        what = f"{file.name} is not a complete Avro file: {why.splitlines()[0]}"
        raise Mistake("LOAD_NOT_AVRO", what, at=file.name, fix="copy or write it again") from error
    return scratch.replace_file(file, target)


def _read_batches(rows: Iterator[Any], columns: "AvroColumns") -> Iterator[list[dict[str, Any]]]:
    while batch := [columns.convert_record(row) for row in islice(rows, _BATCH)]:
        yield batch


def _parse_columns(file: LocalFile, schema: Any) -> "AvroColumns":
    from runnel.connect.files.convert.avro_types import AvroColumns

    if not isinstance(schema, dict) or schema.get("type") != "record":
        what = f"{file.name} has values that are not records"
        raise Mistake("LOAD_NOT_AVRO", what, at=file.name, fix="write records")
    return AvroColumns(schema)
