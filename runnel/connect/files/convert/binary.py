"""Convert a whole file to one row of Parquet: path, size, time, checksum and contents."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.errors import Mistake

MAX_FILE_BYTES = 1 << 30


def to_parquet(file: LocalFile, scratch: ScratchFiles) -> LocalFile:
    """Return a Parquet file with one row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.bytes > MAX_FILE_BYTES:
        what = f"{file.name} has {file.bytes:,} bytes, too many for one value"
        raise Mistake("LOAD_FILE_LARGE", what, at=file.name, fix="keep large files with `runnel put`")
    contents = Path(file.path).read_bytes()
    kinds: dict[str, pa.DataType] = {"path": pa.string(), "size": pa.int64(), "modified_at": pa.timestamp("us", "UTC")}
    schema = pa.schema({**kinds, "sha256": pa.string(), "content": pa.binary()})
    row = {
        "path": file.name,
        "size": len(contents),
        "modified_at": datetime.fromtimestamp(file.modified_at, UTC),
        "sha256": hashlib.sha256(contents).hexdigest(),
        "content": contents,
    }
    target = scratch.new_path("file.parquet")
    pq.write_table(pa.Table.from_pylist([row], schema), target, compression="zstd")
    return scratch.replace_file(file, target)
