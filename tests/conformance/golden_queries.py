"""Ask the golden queries in a lake of their own, and judge each answer of DuckDB's."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from sqlglot import exp

from runnel.errors import RunnelError
from runnel.lake.store import Store
from runnel.query.dialect.parser import read_statement
from runnel.query.engine import run_query
from tests.conformance.golden_answers import Answer, answer, compare_rows, difference
from tests.conformance.golden_tables import Case, references
from tests.lake.factories import create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAME, SAME_AS_SPARK, SPARK, REFUSED, ABSENT = "same", "same as Spark here", "spark", "refused", "absent"
NOT_WRONG = (SAME, SAME_AS_SPARK, SPARK, REFUSED, ABSENT)


@dataclass(frozen=True)
class Verdict:
    """What came of a case: one of the words above, or in what DuckDB's answer is wrong; and the details."""

    case: Case
    word: str
    detail: str = ""

    @property
    def wrong(self) -> bool:
        """Tell whether DuckDB gave another answer than Spark."""
        return self.word not in NOT_WRONG


def judge(cases: Iterable[Case], spark: "Callable[[], SparkSession] | None" = None) -> Iterator[Verdict]:
    """Yield the verdict on each case; the cases of one file share a lake.

    `spark` is asked where DuckDB's answer is not the golden one.
    """
    for _, of_file in groupby(cases, key=lambda case: case.statement.file):
        with TemporaryDirectory(prefix="runnel-golden-") as folder:
            lake = GoldenLake(Path(folder), spark)
            yield from map(lake.judge, of_file)
            lake.close()


class GoldenLake:
    """A lake with the tables of golden queries, each content once, in a layer of its own."""

    def __init__(self, folder: Path, spark: "Callable[[], SparkSession] | None") -> None:
        self._store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
        self._spark = spark
        self._layers: dict[str, str] = {}
        self.close = self._store.close

    def judge(self, case: Case) -> Verdict:
        """Ask DuckDB, and compare."""
        if case.absent is not None:
            return Verdict(case, ABSENT, case.absent)
        statement = case.statement
        try:
            sql = self._placed(case)
            ours = answer(run_query(self._store, sql, engine="duckdb").table())
        except RunnelError as error:
            return Verdict(case, SPARK if error.code == "SQL_NEEDS_SPARK" else REFUSED, f"{error.code}: {error.what}")
        except Exception as error:  # never seen by a user: only RunnelErrors are
            return Verdict(case, "crash", f"{type(error).__name__}: {error}")
        keys = order_keys(sql, ours)
        word = "error" if statement.failed else difference(ours, statement.schema, statement.output, keys)
        if word is None:
            return Verdict(case, SAME)
        detail = f"{ours.schema}\n{_text(ours)}"
        if self._spark is not None and self._spark_agrees(sql, ours, keys):
            return Verdict(case, SAME_AS_SPARK, detail)
        return Verdict(case, word, detail)

    def _placed(self, case: Case) -> str:
        """Return the query over the tables of the lake."""
        sql = case.statement.sql
        for place in reversed(references(sql) if case.tables else []):
            path = case.tables[place.name]
            if path not in self._layers:
                layer = f"golden{len(self._layers)}"
                create(self._store, f"{layer}.{place.name.split('.')[-1]}", pq.read_table(path))
                self._layers[path] = layer
            sql = f"{sql[: place.start]}{self._layers[path]}.{place.name.split('.')[-1]}{sql[place.end :]}"
        return sql

    def _spark_agrees(self, sql: str, ours: Answer, keys: list[int] | None) -> bool:
        """Tell whether Spark, asked the same over the same tables, says the same.

        The golden files were written in another time zone, and over types that Iceberg does not have.
        """
        try:
            theirs = answer(run_query(self._store, sql, engine="spark", spark=self._spark).table())
        except RunnelError:
            return False
        rows = ([list(row) for row in ours.rows], [list(row) for row in theirs.rows])
        return ours.schema == theirs.schema and compare_rows(*rows, keys, ours.digits) is None


def order_keys(sql: str, ours: Answer) -> list[int] | None:
    """Return by which columns of the answer it is ordered, None if it is not, or by something else."""
    order = read_statement(sql)[0].args.get("order")
    names = [name.lower() for name in ours.names]
    keys = []
    for entry in order.expressions if order is not None else ():
        key = entry.this
        if isinstance(key, exp.Literal) and key.this.isdigit() and int(key.this) <= len(names):
            keys.append(int(key.this) - 1)
        elif isinstance(key, exp.Column) and names.count(key.name.lower()) == 1:
            keys.append(names.index(key.name.lower()))
        else:
            break
    return keys or None


def _text(ours: Answer) -> str:
    return "\n".join("\t".join(row) for row in ours.rows)
