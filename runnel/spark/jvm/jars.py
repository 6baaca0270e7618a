"""Pin the jars that Runnel adds to Spark, and fetch them into the cache.

A jar is copied from the folder `RUNNEL_JARS` if that is set, else downloaded once; it is checked against its pinned
checksum and then moved into place atomically. Later starts check sizes only; `runnel doctor` verifies the checksums.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from runnel import failpoint
from runnel.errors import CorruptData, Unreachable, join_names
from runnel.spark.jvm import cache_dir, maven_resolver
from runnel.spark.jvm.java_home import Java

ReportLine = Callable[[str], None]

JARS_FETCHED = failpoint.declare("spark.jars.fetched", "jars are in a separate folder, unchecked")
JAR_CHECKED = failpoint.declare("spark.jars.checked", "a jar's sum is right; it is not in the cache yet")
JAR_MOVED = failpoint.declare("spark.jars.moved", "a jar is in the cache")


@dataclass(frozen=True)
class Jar:
    """One pinned jar."""

    group: str
    name: str
    version: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The jar's name as repositories write it."""
        return f"{self.name}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        """The jar's full name, `group:name:version`."""
        return f"{self.group}:{self.name}:{self.version}"


LAKE_JARS = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        48_309_426,
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Jar(
        "org.postgresql",
        "postgresql",
        "42.7.14",
        1_221_004,
        "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
    ),
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.53.4.0",
        12_002_370,
        "bcb1f51e36f940867e83342f9efbf5968ac44a6bef4d397bb4af7b17b45cd2fb",
    ),
)
"""The jars that the lake needs. `ensure_jars` accepts any tuple, such as the jars of another system."""


def ensure_jars(java: Java, jars: Sequence[Jar] = LAKE_JARS, report: ReportLine | None = None) -> tuple[Path, ...]:
    """Return the jars' paths in the cache; fetch the missing ones first.

    If several processes start for the first time, one fetches and the others wait for it.
    """
    jar_folder = cache_dir.ensure_folder("jars")
    if _list_missing(jar_folder, jars):
        with cache_dir.lock_file(jar_folder / ".lock"):
            missing = _list_missing(jar_folder, jars)
            if missing:
                _fetch_missing(jar_folder, missing, java, report or (lambda _: None))
    return tuple(jar_folder / jar.file_name for jar in jars)


def is_present(jar_folder: Path, jar: Jar) -> bool:
    """Return whether the folder has the jar with the right size."""
    try:
        return (jar_folder / jar.file_name).stat().st_size == jar.size
    except FileNotFoundError:
        return False


def has_pinned_sum(path: Path, jar: Jar) -> bool:
    """Return whether the file has the pinned checksum; reads all of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def _list_missing(jar_folder: Path, jars: Sequence[Jar]) -> list[Jar]:
    return [jar for jar in jars if not is_present(jar_folder, jar)]


def _fetch_missing(jar_folder: Path, missing: Sequence[Jar], java: Java, report: ReportLine) -> None:
    size = sum(jar.size for jar in missing)
    cache_dir.require_space(jar_folder, 2 * size + 10_000_000)
    for old in jar_folder.glob("incoming-*"):  # left by a killed process; we hold the lock, so it is not in use
        shutil.rmtree(old, ignore_errors=True)
    try:
        with TemporaryDirectory(prefix="incoming-", dir=jar_folder) as staging:
            if os.environ.get("RUNNEL_JARS"):
                fetched = _copy_jars(missing, Path(os.environ["RUNNEL_JARS"]).expanduser(), Path(staging))
            else:
                report(f"downloading {len(missing)} jars for Spark ({cache_dir.format_megabytes(size)}), once")
                fetched = _download_jars(missing, java, Path(staging))
            failpoint.reach(JARS_FETCHED)
            _move_into_cache(missing, fetched, jar_folder)
    except OSError as error:
        raise cache_dir.disk_error(error, jar_folder) from error


def _copy_jars(missing: Sequence[Jar], source: Path, staging: Path) -> dict[Jar, Path]:
    # The resolver writes `group_name-version.jar`; accept a folder with its output, too.
    copied = {}
    for jar in missing:
        for name in (jar.file_name, f"{jar.group}_{jar.file_name}"):
            if (source / name).is_file():
                copied[jar] = Path(shutil.copyfile(source / name, staging / jar.file_name))
                break
    missing_names = [jar.file_name for jar in missing if jar not in copied]
    if missing_names:
        what = (
            f"RUNNEL_JARS is {source}, but {join_names(missing_names)} "
            f"{'is' if len(missing_names) == 1 else 'are'} not in it"
        )
        raise Unreachable("SPARK_JARS", what, fix="copy the missing jars there, or unset RUNNEL_JARS to download them")
    return copied


def _download_jars(missing: Sequence[Jar], java: Java, staging: Path) -> dict[Jar, Path]:
    outcome = maven_resolver.resolve_jars(java, [jar.coordinate for jar in missing], staging)
    downloaded = {jar: path for jar in missing if (path := outcome.folder / f"{jar.group}_{jar.file_name}").is_file()}
    missing_names = [jar.file_name for jar in missing if jar not in downloaded]
    if missing_names:
        what = f"could not download {join_names(missing_names)}: {outcome.reason}"
        fix = "connect this machine to the network, or put the jars into a folder and set RUNNEL_JARS to it"
        raise Unreachable("SPARK_JARS", what, at=str(outcome.log), fix=fix)
    return downloaded


def _move_into_cache(missing: Sequence[Jar], fetched: dict[Jar, Path], jar_folder: Path) -> None:
    wrong_names = [jar.file_name for jar in missing if not has_pinned_sum(fetched[jar], jar)]
    if wrong_names:
        what = f"{join_names(wrong_names)} arrived with the wrong SHA-256 sum and will not be used"
        fix = "download it again from a source that you trust: this is not the published file"
        raise CorruptData("SPARK_JARS_SUM", what, fix=fix)
    for jar in missing:
        failpoint.reach(JAR_CHECKED)
        with fetched[jar].open("rb") as file:
            os.fsync(file.fileno())
        fetched[jar].replace(jar_folder / jar.file_name)
        failpoint.reach(JAR_MOVED)
