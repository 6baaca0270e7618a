"""Check that executors can do this driver's work: the same Python and packages, and the files of the warehouse."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Mistake, Unreachable
from runnel.spark.executors.unit_runner import ExecutorRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "pyarrow", "duckdb", "pyiceberg", "pandas", "sqlglot", "cachetools")
_JOB_GROUP = "runnel probe"


@dataclass(frozen=True)
class ExecutorFacts:
    """What an executor has: its Python, the versions of packages, and the content of the file that it was shown."""

    python: str
    executable: str
    packages: Mapping[str, str | None]
    file_content: str | None = None


def read_facts(path: str | None) -> ExecutorFacts:
    """Return the facts of this process; `path` is a file to read."""
    content = None
    if path is not None:
        try:
            content = Path(path).read_text()
        except OSError:
            content = None
    python = ".".join(map(str, sys.version_info[:2]))
    return ExecutorFacts(python, sys.executable, {name: _read_version(name) for name in PACKAGES}, content)


def _read_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def probe_executor(spark: "SparkSession", path: str | None = None) -> ExecutorFacts:
    """Return the facts of an executor of the session; waits for one for at most a minute."""
    try:
        [facts] = ExecutorRunner(spark, _JOB_GROUP, is_limited=False).run(read_facts, [path])
    except Unreachable as error:
        raise _describe_failed_probe(error) from error
    return facts


def check_facts(facts: ExecutorFacts) -> None:
    """Raise if an executor has another Python or other packages than this process."""
    own_facts = read_facts(None)
    if facts.python != own_facts.python:
        what = f"executors run Python {facts.python} ({facts.executable}), this process Python {own_facts.python}"
        raise Mistake("SPARK_EXECUTOR_PYTHON", what, fix=_FIX)
    differences = [
        f"{name} {facts.packages.get(name) or 'is missing'} instead of {own_version}"
        for name, own_version in own_facts.packages.items()
        if own_version is not None and facts.packages.get(name) != own_version
    ]
    if differences:
        what = f"the packages of executors ({facts.executable}) differ: {', '.join(differences)}"
        raise Mistake("SPARK_EXECUTOR_PACKAGES", what, fix=_FIX)


_FIX = (
    "install the same packages on all machines at the same path, or set PYSPARK_PYTHON to their Python, or ship a "
    "packed environment: spark.archives with spark.pyspark.python (docs/cluster.md)"
)


def _describe_failed_probe(error: Unreachable) -> Unreachable:
    if error.code == "SPARK_NO_EXECUTOR":
        return error
    return Unreachable("SPARK_EXECUTOR_PYTHON", f"Python does not start on executors: {error.what}", fix=_FIX)
