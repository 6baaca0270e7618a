"""Build the tables that Spark's golden queries read: Spark runs the statements before them, and hands the rows over.

Never touches a lake.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from sqlglot import exp

from runnel.errors import RunnelError
from runnel.query.allow_list import _is_defined_by_with
from runnel.query.dialect.parser import read_statement
from tests.conformance.golden_files import Statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.sources.default": "parquet",
}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
_TENK = """
    unique1 unique2 two four ten twenty hundred thousand twothousand fivethous tenthous odd even
"""
_WIDENED = ("tinyint", "smallint")
_STORED = {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date"}
_STORED |= {"timestamp", "timestamp_ntz"}
_SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


@dataclass(frozen=True)
class Case:
    """A query with the tables that it reads, by the name under which it knows them; `absent` tells why it can't run."""

    statement: Statement
    tables: Mapping[str, str] = field(default_factory=dict)
    absent: str | None = None


@dataclass(frozen=True)
class Reference:
    """A name in FROM that a query does not define itself, and where it stands in the text."""

    name: str
    start: int
    end: int


def references(sql: str) -> list[Reference]:
    """Return the tables that a query names, in the order of the text; raises what the reader refuses."""
    tree, _ = read_statement(sql)
    places = []
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if len(parts) == 1 and _is_defined_by_with(table, parts[0].name.lower()):
            continue
        if not all(isinstance(part, exp.Identifier) for part in parts):
            continue
        name = ".".join(part.name for part in parts).lower()
        places.append(Reference(name, parts[0].meta["start"], parts[-1].meta["end"] + 1))
    return sorted(places, key=lambda place: place.start)


class GoldenTables:
    """The tables of the golden files, one file after another, as Parquet files below `folder`."""

    def __init__(self, spark: "SparkSession", jar: Path, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._count = 0
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tables").mkdir(parents=True)
        self._given = _given_tables(jar, folder)

    def cases(self, number: int, statements: Sequence[Statement]) -> Iterator[Case]:
        """Yield the queries of a file that need no setting, each with its tables as they are at its turn."""
        if all(statement.setting for statement in statements):
            return
        session = self._session(f"golden{number}", "\n".join(statement.sql for statement in statements).lower())
        exported: dict[str, str] = {}
        for statement in statements:
            if statement.setting:
                break
            if not statement.is_query:
                _execute(session, statement.sql)
                exported = {}
                continue
            yield self._case(session, statement, exported)
        session.sql("USE default")
        session.sql(f"DROP DATABASE golden{number} CASCADE")

    def _session(self, database: str, text: str) -> "SparkSession":
        session = self._spark.newSession()
        for key, value in _QUICK.items():
            session.conf.set(key, value)
        session.sql(f"CREATE DATABASE {database} LOCATION '{self._folder}/{database}'")
        session.sql(f"USE {database}")
        for name, path in self._given.items():
            if name in text:
                session.sql(f"CREATE TABLE {name} USING parquet LOCATION '{path}'")
        return session

    def _case(self, session: "SparkSession", statement: Statement, exported: dict[str, str]) -> Case:
        try:
            places = references(statement.sql)
        except RunnelError:
            return Case(statement)  # the query itself will be refused
        tables = {}
        for name in dict.fromkeys(place.name for place in places):
            if name not in exported:
                exported[name] = self._export(session, name)
            if exported[name].startswith("absent: "):
                return Case(statement, absent=exported[name].removeprefix("absent: "))
            tables[name] = exported[name]
        return Case(statement, tables)

    def _export(self, session: "SparkSession", name: str) -> str:
        if not all(_NAME.match(part) for part in name.split(".")):
            return "absent: a table of an unusual name"
        try:
            frame = session.table(name)
        except Exception:
            return "absent: a table that is not there"
        unstored = next(filter(None, map(_unstored, frame.schema.fields)), None)
        if unstored:
            return f"absent: a column of type {unstored}"
        self._count += 1
        path = self._folder / "tables" / f"{self._count}.parquet"
        try:
            pq.write_table(_widened(frame), path)
        except Exception as error:
            return f"absent: a table that can't be handed over ({type(error).__name__})"
        return str(path)


def _execute(session: "SparkSession", sql: str) -> None:
    try:
        session.sql(sql).collect()
    except Exception:
        return  # the golden file may say so, too; what then lacks is seen where it is read


def _unstored(column: "StructField") -> str | None:
    """Return the type in a column that the lake can't hold, if there is one."""
    if any("char" in str(value) for value in column.metadata.values()):
        return "char or varchar"
    kinds = list(_simple_types(column.dataType.jsonValue()))
    return next((kind for kind in kinds if not kind.startswith("decimal(") and kind not in _STORED), None)


def _simple_types(kind: Any) -> Iterator[str]:
    """Yield the types that a type, in Spark's JSON, is put together of."""
    if isinstance(kind, str):
        yield _SYNONYMS.get(kind, kind)
    for key in ("elementType", "keyType", "valueType") if isinstance(kind, dict) else ():
        if key in kind:
            yield from _simple_types(kind[key])
    for column in kind.get("fields", ()) if isinstance(kind, dict) else ():
        yield from _simple_types(column["type"])


def _widened(frame: "DataFrame") -> pa.Table:
    """Return the rows in types that Iceberg has: it knows no whole numbers of one or two bytes."""
    for column in frame.schema.fields:
        if column.dataType.simpleString() in _WIDENED:
            frame = frame.withColumn(column.name, frame[f"`{column.name}`"].cast("int"))
    table = frame.toArrow()
    return table.cast(pa.schema([pa.field(f.name, _zoned(f.type)) for f in table.schema]))


def _zoned(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _given_tables(jar: Path, folder: Path) -> dict[str, Path]:
    """Return the tables that every golden file may read, as Spark's test suite fills them, each as a Parquet file."""
    arrays = [[1, 2, 3], [2, 3, 4]]
    maps = [[(key, f"{'abcde'[key - 1]}{row}") for key in range(1, 7 - row)] for row in range(1, 6)]
    numbers = list(range(1, 101))
    tables = {
        "testdata": pa.table({"key": pa.array(numbers, pa.int32()), "value": [str(number) for number in numbers]}),
        "arraydata": pa.table(
            {
                "arraycol": pa.array(arrays, pa.list_(pa.int32())),
                "nestedarraycol": pa.array([[row] for row in arrays], pa.list_(pa.list_(pa.int32()))),
            }
        ),
        "mapdata": pa.table({"mapcol": pa.array(maps, pa.map_(pa.int32(), pa.string()))}),
        "aggtest": _data(jar, "agg", {"a": pa.int32(), "b": pa.float32()}),
    }
    columns = dict.fromkeys(_TENK.split(), pa.int32()) | dict.fromkeys(("stringu1", "stringu2", "string4"), pa.string())
    tables |= {"onek": _data(jar, "onek", columns), "tenk1": _data(jar, "tenk", columns)}
    paths = {}
    for name, table in tables.items():
        paths[name] = folder / "given" / name / "rows.parquet"
        paths[name].parent.mkdir(parents=True)
        pq.write_table(table, paths[name])
    return {name: path.parent for name, path in paths.items()}


def _data(jar: Path, name: str, columns: Mapping[str, pa.DataType]) -> pa.Table:
    with ZipFile(jar) as archive, archive.open(f"test-data/postgresql/{name}.data") as file:
        return pa.csv.read_csv(
            pa.BufferReader(file.read()),
            read_options=pa.csv.ReadOptions(column_names=list(columns)),
            parse_options=pa.csv.ParseOptions(delimiter="\t"),
            convert_options=pa.csv.ConvertOptions(column_types=dict(columns)),
        )
