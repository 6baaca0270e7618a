"""Check what Spark needs on this machine, for `runnel doctor`.

Starts no Spark and changes nothing; runs `java -version` and reads every jar once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from runnel.errors import RunnelError
from runnel.spark.jvm import cache_dir, cds_archive
from runnel.spark.jvm.command_line import build_class_path, default_heap_bytes, memory_bytes
from runnel.spark.jvm.jars import LAKE_JARS, Jar, has_pinned_sum
from runnel.spark.jvm.java_home import find_java, run_java_version

_LITTLE_MEMORY = 3 << 30
_LITTLE_DISK = 1_000_000_000


@dataclass(frozen=True)
class DoctorFinding:
    """The result of one check. `fix` says what to do unless the state is `ok`."""

    name: str
    state: Literal["ok", "warn", "fail"]
    what: str
    fix: str | None = None


def diagnose_spark() -> list[DoctorFinding]:
    """Return the findings, in the order in which a start of Spark needs them."""
    probes: list[Callable[[], DoctorFinding]] = [_pyspark, _java, _jars, _archive, _memory, _disk]
    findings = []
    for probe in probes:
        try:
            findings.append(probe())
        except RunnelError as error:
            findings.append(DoctorFinding(probe.__name__.strip("_"), "fail", error.what, error.fix))
    return findings


def _pyspark() -> DoctorFinding:
    try:
        return DoctorFinding("pyspark", "ok", f"pyspark {version('pyspark')}")
    except PackageNotFoundError:
        return DoctorFinding("pyspark", "fail", "the package pyspark is not installed", "install Runnel again")


def _java() -> DoctorFinding:
    java = find_java()
    if run_java_version(java.home) is None:
        return DoctorFinding(
            "java", "fail", f"{java.executable} does not run", "install Runnel again, or set JAVA_HOME"
        )
    return DoctorFinding("java", "ok", f"Java {java.version} from {java.origin}: {java.home}")


def _jars() -> DoctorFinding:
    jar_folder = cache_dir.cache_folder() / "jars"
    missing_names = [jar.file_name for jar in LAKE_JARS if not (jar_folder / jar.file_name).is_file()]
    wrong_names = [jar.file_name for jar in LAKE_JARS if _is_wrong(jar_folder / jar.file_name, jar)]
    if wrong_names:
        what = f"{', '.join(wrong_names)} in {jar_folder}: not what was published"
        return DoctorFinding("jars", "fail", what, "delete it; the next start downloads it again")
    if missing_names:
        fix = "they are downloaded at the first start; without network set RUNNEL_JARS to a folder that holds them"
        return DoctorFinding("jars", "warn", f"not there yet: {', '.join(missing_names)}", fix)
    return DoctorFinding("jars", "ok", f"{len(LAKE_JARS)} jars in {jar_folder}, their checksums match")


def _is_wrong(path: Path, jar: Jar) -> bool:
    return path.is_file() and not has_pinned_sum(path, jar)


def _archive() -> DoctorFinding:
    if not cds_archive.is_enabled():
        return DoctorFinding("archive", "warn", "turned off by RUNNEL_CDS", "unset RUNNEL_CDS: Spark starts faster")
    jar_folder = cache_dir.cache_folder() / "jars"
    jars = tuple(jar_folder / jar.file_name for jar in LAKE_JARS)
    if not all(path.is_file() for path in jars):
        return DoctorFinding(
            "archive", "warn", "waits for the jars", "Runnel builds it in the background after the first start"
        )
    path = cds_archive.archive_path(find_java(), build_class_path(jars, {}))
    if path.is_file():
        return DoctorFinding("archive", "ok", f"{path}, {cache_dir.format_megabytes(path.stat().st_size)}")
    if cds_archive.is_building():
        return DoctorFinding("archive", "ok", "is being built in the background; until then Spark starts more slowly")
    reason = cds_archive.read_failure(path)
    if reason:
        return DoctorFinding(
            "archive", "warn", f"could not be built: {reason}", "Spark works without it, but starts more slowly"
        )
    return DoctorFinding(
        "archive", "warn", "not there yet", "Runnel builds it in the background after the next start of Spark"
    )


def _memory() -> DoctorFinding:
    memory, heap = memory_bytes(), default_heap_bytes()
    what = f"{cache_dir.format_megabytes(memory)}, of which Spark takes at most {cache_dir.format_megabytes(heap)}"
    if memory < _LITTLE_MEMORY:
        return DoctorFinding(
            "memory", "warn", what, "close other programs; spark.driver.memory sets how much Spark takes"
        )
    return DoctorFinding("memory", "ok", what)


def _disk() -> DoctorFinding:
    cache_path = cache_dir.cache_folder()
    free = cache_dir.free_bytes(cache_path)
    what = f"{cache_dir.format_megabytes(free)} free on the disk of {cache_path}"
    if free < _LITTLE_DISK:
        return DoctorFinding("disk", "warn", what, "free some space, or set RUNNEL_CACHE to a folder on another disk")
    return DoctorFinding("disk", "ok", what)
