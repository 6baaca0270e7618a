"""Make a class-data-sharing archive: run Spark once, note which classes it loads, and have Java store them.

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
from runnel.spark.jvm.command_line import class_path, spark_command
from runnel.spark.jvm.jars import ensure_jars
from runnel.spark.jvm.java_home import Java, find_java
from runnel.spark.jvm.launch import Stillborn, last_words, launch
from runnel.spark.jvm.scratch_dir import new_scratch
from runnel.spark.session import SparkSettings, connect

LISTED = failpoint.declare("spark.archive.listed", "the classes to store are known")
DUMPED = failpoint.declare("spark.archive.dumped", "the archive is written, under a temporary name")
RENAMED = failpoint.declare("spark.archive.renamed", "the archive is in place; old ones are still there")

_PATIENCE_SECONDS = 900


def build(java: Java, jars: Sequence[Path], *, wait: bool = True) -> Path | None:
    """Return the archive for this Java and class path, made now unless it is there.

    With `wait` false and another process making one, return None at once.
    """
    home = cache_dir.folder("archives")
    path = cds_archive.archive_path(java, jars)
    with cache_dir.locked(home / ".lock", wait=wait) as got:
        if not got:
            return None
        if not path.exists():
            cache_dir.need_space(home, 2 * cds_archive.SIZE_BYTES)
            _clean(home)
            try:
                _make(java, jars, path)
            except Stillborn as death:
                path.with_suffix(".failed").write_text(death.line)
                raise RunnelError("SPARK_ARCHIVE", f"the archive was not made: {death.line}") from None
            except OSError as error:
                raise cache_dir.disk_error(error, home) from error
    return path


def _make(java: Java, jars: Sequence[Path], path: Path) -> None:
    with TemporaryDirectory(prefix="building-", dir=path.parent) as name:
        folder = Path(name)
        _list_classes(java, jars, folder)
        failpoint.reach(LISTED)
        made = _dump(java, jars, folder)
        failpoint.reach(DUMPED)
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(path)
        failpoint.reach(RENAMED)
    cds_archive.prune(path)


def _list_classes(java: Java, jars: Sequence[Path], folder: Path) -> None:
    settings = SparkSettings(master="local[2]", catalogs=(cds_training.catalog(folder),))
    scratch = new_scratch()
    memory = {"spark.driver.memory": "1g"}
    command = spark_command(java, (), tuple(jars), settings.master, memory, scratch.path)
    options = ("-Xshare:off", f"-XX:DumpLoadedClassList={folder / 'classes'}")
    try:
        jvm = launch(command, options, scratch, settings.master, folder / "log", _PATIENCE_SECONDS)
    except BaseException:
        scratch.remove()
        raise
    try:
        spark = connect(settings, jvm)
        cds_training.exercise(spark, folder)
        spark.stop()
    finally:
        jvm.end()


def _dump(java: Java, jars: Sequence[Path], folder: Path) -> Path:
    made = folder / "archive"
    # Only this collector can store ready-made objects along with the classes; any other can use them.
    options = ["-Xshare:dump", f"-XX:SharedClassListFile={folder / 'classes'}", f"-XX:SharedArchiveFile={made}"]
    line = [str(java.executable), *options, "-XX:+UseG1GC", "-Xmx2g", "-cp", os.pathsep.join(map(str, jars))]
    start = (folder / "log").stat().st_size
    running = child_process.spawn(line, log=folder / "log")
    try:
        running.wait(_PATIENCE_SECONDS)
    finally:
        child_process.end(running, patience_seconds=0)
    if running.returncode != 0 or not made.is_file():
        raise Stillborn(last_words(folder / "log", start))
    return made


def _clean(home: Path) -> None:
    for old in home.glob("building-*"):  # left by a kill; we hold the lock, so nobody is using it
        shutil.rmtree(old, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    """Make the archive of the usual class path, or of the one that a background start wrote to our input."""
    java = find_java()
    try:
        if "--background" in arguments:
            jars = [Path(entry) for entry in json.load(sys.stdin)]
            os.nice(19)
            build(java, jars, wait=False)
        else:
            build(java, class_path(ensure_jars(java), {}))
    except RunnelError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
