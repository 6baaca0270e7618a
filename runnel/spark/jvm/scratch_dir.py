"""Create a temporary folder for one JVM; it is removed with the JVM or, after a kill, by the next start."""

import tempfile
from pathlib import Path

from runnel.spark.jvm import cache_dir
from runnel.temp_dirs import OwnedDir, create_owned_dir


def create_scratch_dir() -> OwnedDir:
    """Create a temporary folder for a JVM."""
    try:
        return create_owned_dir("jvm")
    except OSError as error:
        raise cache_dir.disk_error(error, Path(tempfile.gettempdir())) from error
