"""Convert ORC to Parquet."""

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.scratch_files import ScratchFiles
from runnel.errors import Mistake


def to_parquet(file: LocalFile, scratch: ScratchFiles) -> LocalFile:
    """Convert an ORC file to Parquet, stripe by stripe, and return the Parquet file."""
    import pyarrow as pa
    import pyarrow.orc as orc
    import pyarrow.parquet as pq

    target = scratch.new_parquet_path(file)
    try:
        orc_file = orc.ORCFile(file.path)
        with pq.ParquetWriter(target, orc_file.schema, compression="zstd") as writer:
            for number in range(orc_file.nstripes):
                writer.write_batch(orc_file.read_stripe(number))
    except (pa.ArrowException, OSError, ValueError) as error:
        what = f"{file.name} is not a complete ORC file: {str(error).splitlines()[0]}"
        raise Mistake("LOAD_NOT_ORC", what, at=file.name, fix="copy or write it again") from error
    return scratch.replace_file(file, target)
