"""The jars that Runnel adds to Spark: which ones exactly, and how they get into the cache.

A jar comes from the folder `RUNNEL_JARS` if that is set, else from the network, once; it is checked against its pinned
sum when it arrives and moved into place whole. Later starts look at sizes only; `runnel doctor` sums everything again.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from runnel import failpoint
from runnel.errors import Broken, Unreachable, listed
from runnel.spark.jvm import cache_dir, maven_resolver
from runnel.spark.jvm.java_home import Java

Tell = Callable[[str], None]

FETCHED = failpoint.declare("spark.jars.fetched", "jars lie in a folder of their own, unchecked")
CHECKED = failpoint.declare("spark.jars.checked", "a jar's sum is right; it is not in the cache yet")
MOVED = failpoint.declare("spark.jars.moved", "a jar is in the cache")


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


LAKE = (
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
"""What the lake needs. Another system's jars are another tuple; `ensure_jars` takes any."""


def ensure_jars(java: Java, jars: Sequence[Jar] = LAKE, tell: Tell | None = None) -> tuple[Path, ...]:
    """Return the jars' paths in the cache, fetching what is not there yet.

    Of several first starts at once, one fetches and the others wait for it.
    """
    home = cache_dir.folder("jars")
    if _missing(home, jars):
        with cache_dir.locked(home / ".lock"):
            missing = _missing(home, jars)
            if missing:
                _arrive(home, missing, java, tell or (lambda line: None))
    return tuple(home / jar.file_name for jar in jars)


def is_present(home: Path, jar: Jar) -> bool:
    """Tell whether the jar is in `home` with the right size."""
    try:
        return (home / jar.file_name).stat().st_size == jar.size
    except FileNotFoundError:
        return False


def is_right(path: Path, jar: Jar) -> bool:
    """Tell whether the file's sum is the pinned one; reads all of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def _missing(home: Path, jars: Sequence[Jar]) -> list[Jar]:
    return [jar for jar in jars if not is_present(home, jar)]


def _arrive(home: Path, missing: Sequence[Jar], java: Java, tell: Tell) -> None:
    size = sum(jar.size for jar in missing)
    cache_dir.need_space(home, 2 * size + 10_000_000)
    for old in home.glob("incoming-*"):  # left by a kill; we hold the lock, so nobody is using it
        shutil.rmtree(old, ignore_errors=True)
    try:
        with TemporaryDirectory(prefix="incoming-", dir=home) as staging:
            if os.environ.get("RUNNEL_JARS"):
                found = _copied(missing, Path(os.environ["RUNNEL_JARS"]).expanduser(), Path(staging))
            else:
                tell(f"downloading {len(missing)} jars for Spark ({cache_dir.megabytes(size)}), once")
                found = _downloaded(missing, java, Path(staging))
            failpoint.reach(FETCHED)
            _move(missing, found, home)
    except OSError as error:
        raise cache_dir.disk_error(error, home) from error


def _copied(missing: Sequence[Jar], source: Path, staging: Path) -> dict[Jar, Path]:
    # The resolver writes `group_name-version.jar`; a folder filled from its output is as good as any.
    found = {}
    for jar in missing:
        for name in (jar.file_name, f"{jar.group}_{jar.file_name}"):
            if (source / name).is_file():
                found[jar] = Path(shutil.copyfile(source / name, staging / jar.file_name))
                break
    absent = [jar.file_name for jar in missing if jar not in found]
    if absent:
        what = f"RUNNEL_JARS is {source}, but {listed(absent)} {'is' if len(absent) == 1 else 'are'} not in it"
        raise Unreachable("SPARK_JARS", what, fix="copy the missing jars there, or unset RUNNEL_JARS to download them")
    return found


def _downloaded(missing: Sequence[Jar], java: Java, staging: Path) -> dict[Jar, Path]:
    outcome = maven_resolver.resolve(java, [jar.coordinate for jar in missing], staging)
    found = {jar: path for jar in missing if (path := outcome.folder / f"{jar.group}_{jar.file_name}").is_file()}
    absent = [jar.file_name for jar in missing if jar not in found]
    if absent:
        what = f"could not download {listed(absent)}: {outcome.reason}"
        fix = "connect this machine to the network, or put the jars into a folder and set RUNNEL_JARS to it"
        raise Unreachable("SPARK_JARS", what, at=str(outcome.log), fix=fix)
    return found


def _move(missing: Sequence[Jar], found: dict[Jar, Path], home: Path) -> None:
    wrong = [jar.file_name for jar in missing if not is_right(found[jar], jar)]
    if wrong:
        what = f"{listed(wrong)} arrived with the wrong SHA-256 sum and will not be used"
        fix = "fetch it again from a source that you trust: what came is not what was published"
        raise Broken("SPARK_JARS_SUM", what, fix=fix)
    for jar in missing:
        failpoint.reach(CHECKED)
        with found[jar].open("rb") as file:
            os.fsync(file.fileno())
        found[jar].replace(home / jar.file_name)
        failpoint.reach(MOVED)
