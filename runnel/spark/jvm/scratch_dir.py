"""A folder for the temporary files of one JVM, removed with it or, after a kill, by whoever starts next."""

import tempfile
from pathlib import Path

from runnel.spark.jvm import cache_dir
from runnel.temp_dirs import Owned, owned


def new_scratch() -> Owned:
    """Make a folder."""
    try:
        return owned("jvm")
    except OSError as error:
        raise cache_dir.disk_error(error, Path(tempfile.gettempdir())) from error
