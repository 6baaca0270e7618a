"""Facts about what Spark needs on this machine, for `runnel doctor`.

Starts no Spark and changes nothing; runs `java -version` and reads every jar once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from runnel.errors import RunnelError
from runnel.spark.jvm import cache_dir, cds_archive
from runnel.spark.jvm.command_line import class_path, default_heap_bytes, memory_bytes
from runnel.spark.jvm.jars import LAKE, Jar, is_right
from runnel.spark.jvm.java_home import find_java, said_version

_LITTLE_MEMORY = 3 << 30
_LITTLE_DISK = 1_000_000_000


@dataclass(frozen=True)
class Fact:
    """One thing that was looked at. `fix` says what to do unless the state is `ok`."""

    name: str
    state: Literal["ok", "warn", "fail"]
    what: str
    fix: str | None = None


def facts() -> list[Fact]:
    """Return what was found, in the order in which a start needs it."""
    looks: list[Callable[[], Fact]] = [_pyspark, _java, _jars, _archive, _memory, _disk]
    found = []
    for look in looks:
        try:
            found.append(look())
        except RunnelError as error:
            found.append(Fact(look.__name__.strip("_"), "fail", error.what, error.fix))
    return found


def _pyspark() -> Fact:
    try:
        return Fact("pyspark", "ok", f"pyspark {version('pyspark')}")
    except PackageNotFoundError:
        return Fact("pyspark", "fail", "the package pyspark is not installed", "install Runnel again")


def _java() -> Fact:
    java = find_java()
    if said_version(java.home) is None:
        return Fact("java", "fail", f"{java.executable} does not run", "install Runnel again, or set JAVA_HOME")
    return Fact("java", "ok", f"Java {java.version} from {java.origin}: {java.home}")


def _jars() -> Fact:
    home = cache_dir.cache_folder() / "jars"
    absent = [jar.file_name for jar in LAKE if not (home / jar.file_name).is_file()]
    wrong = [jar.file_name for jar in LAKE if _is_wrong(home / jar.file_name, jar)]
    if wrong:
        what = f"{', '.join(wrong)} in {home}: not what was published"
        return Fact("jars", "fail", what, "delete it; the next start fetches it again")
    if absent:
        fix = "they are downloaded at the first start; without network set RUNNEL_JARS to a folder that holds them"
        return Fact("jars", "warn", f"not there yet: {', '.join(absent)}", fix)
    return Fact("jars", "ok", f"{len(LAKE)} jars in {home}, their sums are right")


def _is_wrong(path: Path, jar: Jar) -> bool:
    return path.is_file() and not is_right(path, jar)


def _archive() -> Fact:
    if not cds_archive.is_wanted():
        return Fact("archive", "warn", "turned off by RUNNEL_CDS", "unset RUNNEL_CDS: Spark starts faster")
    home = cache_dir.cache_folder() / "jars"
    jars = tuple(home / jar.file_name for jar in LAKE)
    if not all(path.is_file() for path in jars):
        return Fact("archive", "warn", "waits for the jars", "it is made in the background after the first start")
    path = cds_archive.archive_path(find_java(), class_path(jars, {}))
    if path.is_file():
        return Fact("archive", "ok", f"{path}, {cache_dir.megabytes(path.stat().st_size)}")
    if cds_archive.is_building():
        return Fact("archive", "ok", "is being made in the background; until then Spark starts more slowly")
    reason = cds_archive.failure(path)
    if reason:
        return Fact("archive", "warn", f"could not be made: {reason}", "Spark works without it, but starts more slowly")
    return Fact("archive", "warn", "not there yet", "it is made in the background after the next start of Spark")


def _memory() -> Fact:
    memory, heap = memory_bytes(), default_heap_bytes()
    what = f"{cache_dir.megabytes(memory)}, of which Spark takes at most {cache_dir.megabytes(heap)}"
    if memory < _LITTLE_MEMORY:
        return Fact("memory", "warn", what, "close other programs; spark.driver.memory sets how much Spark takes")
    return Fact("memory", "ok", what)


def _disk() -> Fact:
    home = cache_dir.cache_folder()
    free = cache_dir.free_bytes(home)
    what = f"{cache_dir.megabytes(free)} free where {home} is"
    if free < _LITTLE_DISK:
        return Fact("disk", "warn", what, "free some space, or set RUNNEL_CACHE to a folder on another disk")
    return Fact("disk", "ok", what)
