"""ORC as Parquet."""

from runnel.connect.files.convert.converted_path import parquet_path
from runnel.connect.files.file_patterns import File
from runnel.connect.files.scratch_files import Scratch
from runnel.errors import Mistake


def parquet(file: File, scratch: Scratch) -> File:
    """Return a Parquet file in the place of one of ORC, stripe by stripe."""
    import pyarrow as pa
    import pyarrow.orc as orc
    import pyarrow.parquet as pq

    target = parquet_path(file, scratch)
    try:
        found = orc.ORCFile(file.path)
        with pq.ParquetWriter(target, found.schema, compression="zstd") as writer:
            for number in range(found.nstripes):
                writer.write_batch(found.read_stripe(number))
    except (pa.ArrowException, OSError, ValueError) as error:
        what = f"{file.name} is not a whole ORC file: {str(error).splitlines()[0]}"
        raise Mistake("LOAD_NOT_ORC", what, at=file.name, fix="copy or write it again") from error
    return scratch.instead(file, target)
