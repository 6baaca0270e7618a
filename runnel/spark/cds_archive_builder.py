"""Build a class-data-sharing archive: run Spark once, record which classes it loads, and let Java dump them.

`python -m runnel.spark.cds_archive_builder` does it in the foreground. At most one runs at a time.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from runnel import failpoint
from runnel.errors import RunnelError
from runnel.spark import cds_training
from runnel.spark.jvm import cache_dir, cds_archive, child_process
from runnel.spark.jvm.command_line import DriverSettings, build_class_path, build_spark_command
from runnel.spark.jvm.jars import ensure_jars
from runnel.spark.jvm.java_home import Java, find_java
from runnel.spark.jvm.launch import JvmStartError, find_exit_reason, launch_jvm
from runnel.spark.jvm.scratch_dir import create_scratch_dir
from runnel.spark.session import SparkSettings, connect_session

LISTED = failpoint.declare("spark.archive.listed", "the classes to store are known")
DUMPED = failpoint.declare("spark.archive.dumped", "the archive is written, under a temporary name")
RENAMED = failpoint.declare("spark.archive.renamed", "the archive is in place; old ones are still there")

_TIMEOUT_SECONDS = 900


def build(java: Java, jars: Sequence[Path], *, wait: bool = True) -> Path | None:
    """Return the archive for this Java and class path; build it if it is missing.

    If another process is building one and `wait` is false, return None at once.
    """
    archive_folder = cache_dir.ensure_folder("archives")
    path = cds_archive.archive_path(java, jars)
    with cache_dir.lock_file(archive_folder / ".lock", wait=wait) as is_locked:
        if not is_locked:
            return None
        if not path.exists():
            cache_dir.require_space(archive_folder, 2 * cds_archive.ARCHIVE_BYTES)
            _remove_leftovers(archive_folder)
            try:
                _build_archive(java, jars, path)
            except JvmStartError as start_error:
                path.with_suffix(".failed").write_text(start_error.line)
                raise RunnelError("SPARK_ARCHIVE", f"the archive was not built: {start_error.line}") from None
            except OSError as error:
                raise cache_dir.disk_error(error, archive_folder) from error
    return path


def _build_archive(java: Java, jars: Sequence[Path], path: Path) -> None:
    with TemporaryDirectory(prefix="building-", dir=path.parent) as name:
        folder = Path(name)
        _list_classes(java, jars, folder)
        failpoint.reach(LISTED)
        new_archive = _dump_archive(java, jars, folder)
        failpoint.reach(DUMPED)
        with new_archive.open("rb") as file:
            os.fsync(file.fileno())
        new_archive.replace(path)
        failpoint.reach(RENAMED)
    cds_archive.prune(path)


def _list_classes(java: Java, jars: Sequence[Path], folder: Path) -> None:
    settings = SparkSettings(master="local[2]", catalogs=(cds_training.build_catalog(folder),))
    scratch = create_scratch_dir()
    driver = DriverSettings(settings.master, {"spark.driver.memory": "1g"})
    command = build_spark_command(java, tuple(jars), driver, scratch.path)
    options = ("-Xshare:off", f"-XX:DumpLoadedClassList={folder / 'classes'}")
    try:
        jvm = launch_jvm(command, options, scratch, folder / "log", _TIMEOUT_SECONDS)
    except BaseException:
        scratch.remove()
        raise
    try:
        spark = connect_session(settings, jvm)
        cds_training.run_training(spark, folder)
        spark.stop()
    finally:
        jvm.end()


def _dump_archive(java: Java, jars: Sequence[Path], folder: Path) -> Path:
    new_archive = folder / "archive"
    # Only G1 can dump heap objects along with the classes; any other collector can use them.
    options = ["-Xshare:dump", f"-XX:SharedClassListFile={folder / 'classes'}", f"-XX:SharedArchiveFile={new_archive}"]
    command_line = [str(java.executable), *options, "-XX:+UseG1GC", "-Xmx2g", "-cp", os.pathsep.join(map(str, jars))]
    log_start = (folder / "log").stat().st_size
    java_process = child_process.spawn(command_line, log=folder / "log")
    try:
        java_process.wait(_TIMEOUT_SECONDS)
    finally:
        child_process.end(java_process, timeout_seconds=0)
    if java_process.returncode != 0 or not new_archive.is_file():
        raise JvmStartError(find_exit_reason(folder / "log", log_start))
    return new_archive


def _remove_leftovers(archive_folder: Path) -> None:
    for old in archive_folder.glob("building-*"):  # left by a killed process; we hold the lock, so it is not in use
        shutil.rmtree(old, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    """Build the archive of the default class path, or of the one that a background start wrote to standard input."""
    java = find_java()
    try:
        if "--background" in arguments:
            jars = [Path(entry) for entry in json.load(sys.stdin)]
            os.nice(19)
            build(java, jars, wait=False)
        else:
            build(java, build_class_path(ensure_jars(java), {}))
    except RunnelError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
