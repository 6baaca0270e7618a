"""Slices of every kind of key: null, NaN, minus zero, odd texts, times, pairs, and more than a condition holds."""

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.run.results.run_result import RunResult
from tests.run.project import Project
from tests.run.run_inspection import Row, counted, oracle, step_of

NAN = math.nan
UTC = dt.UTC
DATE, TEXT, DOUBLE = pa.date32(), pa.string(), pa.float64()
LONG_TEXT = "a text longer than the bounds that files keep "


@dataclass(frozen=True)
class Kind:
    """Keys of one kind: those that stay, and those of a file before and after it changes."""

    types: tuple[pa.DataType, ...]
    stay: tuple[Any, ...]
    before: tuple[Any, ...]
    after: tuple[Any, ...]


def at(*parts: int, tz: dt.tzinfo | None = UTC) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=tz)  # type: ignore[arg-type]


KINDS = {
    "double": Kind(
        (DOUBLE,),
        (0.0, 1.5, 2.5, 1e300, -1e-300, math.inf, 0.1, 7.0, 8.0, 9.0, 10.0, 11.0),
        (NAN, -0.0, 2.5, None, -math.inf),
        (NAN, NAN, 0.1 + 0.2, None, None),
    ),
    "float": Kind((pa.float32(),), (0.0, 1.5, 2.5, 3.5, 4.5, 5.5), (NAN, -0.0), (NAN, 0.5)),
    "time": Kind(
        (pa.timestamp("us", "UTC"),),
        tuple(at(2026, 1, day) for day in range(1, 12)),
        (at(2026, 1, 1, 0, 0, 0, 1), at(1900, 1, 1), None),
        (at(2026, 1, 1, 0, 0, 0, 2), at(1900, 1, 1), at(1900, 1, 1)),
    ),
    "local": Kind(
        (pa.timestamp("us"),),
        tuple(at(2026, 3, day, 2, 30, tz=None) for day in range(20, 31)),  # an hour that some clocks don't have
        (at(2026, 3, 29, 2, 30, tz=None), None),
        (at(2026, 3, 29, 2, 30, 0, 1, tz=None),),
    ),
    "decimal": Kind(
        (pa.decimal128(12, 2),),
        tuple(Decimal(number) / 4 for number in range(10)),
        (Decimal("0.25"), None),
        (Decimal("-0.25"), Decimal("9999999999.99")),
    ),
    "text": Kind(
        (TEXT,),
        (
            "a",
            "A",
            "a ",
            " a",
            "ü",
            "u\u0308",
            "\U0001f600",
            LONG_TEXT + "one",
            "it's",
            "back\\slash",
            "line\nend",
            *"bcdefgh",
        ),
        ("", "a", "it's", "${x}", LONG_TEXT + "one", None),
        ("", "", "A", "it's", '"', LONG_TEXT + "two"),
    ),
    "bytes": Kind((pa.binary(),), tuple(bytes([n]) for n in range(10)), (b"", b"\0", None), (b"", b"", b"\0\0")),
    "truth": Kind((pa.bool_(),), (True, True, False), (None,), (None, None)),
    "whole": Kind((pa.int32(),), tuple(range(-5, 6)), (2**31 - 1, -(2**31), 0), (2**31 - 1, -(2**31), -1)),
    "date": Kind(
        (DATE,),
        tuple(dt.date(2026, 1, day) for day in range(1, 15)),
        (dt.date(1, 1, 1), dt.date(1500, 2, 28), dt.date(9999, 12, 31), None),
        (dt.date(1500, 2, 28), dt.date(1500, 3, 1), dt.date(9999, 12, 31), dt.date(9999, 12, 31)),
    ),
    "pair": Kind(
        (TEXT, DATE),
        tuple((text, dt.date(2026, 1, day)) for text in ("a", "b") for day in range(1, 6)),
        (("a", None), (None, dt.date(2026, 1, 1)), (None, None), ("a", dt.date(2026, 1, 1))),
        (("a", None), (None, dt.date(2026, 1, 2)), (None, None), (None, None), ("b", dt.date(2026, 1, 1))),
    ),
    "odd_pair": Kind(
        (DOUBLE, TEXT),
        tuple((float(number), text) for number in range(5) for text in ("x", "y")),
        ((NAN, "x"), (-0.0, "x"), (NAN, None), (1.0, "x")),
        ((NAN, "y"), (-0.0, "y"), (NAN, None), (1.0, None)),
    ),
}
FLOW = """
def total(name, by):
    rn.source(f"ods.{name}", rn.files(f"data/{name}/*.parquet"))

    @rn.task(f"dws.{name}", inputs={"rows": f"ods.{name}"}, by=by, checks=[rn.check("n < 100", on_fail="quarantine")])
    def total(rows):
        return rows.groupBy(*by).agg(F.sum("v").alias("total"), F.count("*").alias("n"))


"""


def keys_of(kind: Kind, values: Iterable[Any]) -> list[Row]:
    return [value if len(kind.types) > 1 else (value,) for value in values]


def write(project: Project, name: str, file: str, values: Iterable[Any], v: int) -> None:
    kind = KINDS[name]
    keys = keys_of(kind, values)
    columns = {f"k{place}": pa.array([key[place] for key in keys], of) for place, of in enumerate(kind.types)}
    target = project.root / f"data/{name}/{file}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({**columns, "v": pa.array([v] * len(keys), pa.int64())}), target)


def canonical(key: Row) -> Row:
    """Return a key such that those which Spark takes for one are equal."""
    return tuple("NaN" if part != part else part + 0.0 if isinstance(part, float) else part for part in key)


def totals(name: str, after: bool) -> Counter[Row]:
    """Return the rows that a table must have, by another way than Spark's."""
    kind = KINDS[name]
    rows = [(key, 1) for key in keys_of(kind, kind.stay)]
    rows += [(key, 20 if after else 10) for key in keys_of(kind, kind.after if after else kind.before)]
    sums: Counter[Row] = Counter()
    number: Counter[Row] = Counter()
    for key, v in rows:
        sums[canonical(key)] += v
        number[canonical(key)] += 1
    return Counter((*key, sums[key], number[key]) for key in sums)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> tuple[Project, RunResult]:
    """Return a project with a source and a task for each kind of key, and the run after a file of each changed."""
    project = Project(tmp_path_factory.mktemp("keys"), spark)
    calls = (f"total({name!r}, {[f'k{n}' for n in range(len(kind.types))]})" for name, kind in KINDS.items())
    project.flow(FLOW + "\n".join(calls) + "\n", orders=None)
    for name, kind in KINDS.items():
        write(project, name, "stay", kind.stay, 1)
        write(project, name, "moves", kind.before, 10)
    done = project.run()
    assert not done.errors, done.errors[0]
    for name in KINDS:
        assert Counter(map(canonical, project.rows(f"dws.{name}"))) == totals(name, after=False), name
    for name, kind in KINDS.items():
        write(project, name, "moves", kind.after, 20)
    return project, project.run()


@pytest.mark.parametrize("name", KINDS)
def test_keys_of_every_kind(changed: tuple[Project, RunResult], name: str) -> None:
    project, done = changed
    kind, expected = KINDS[name], totals(name, after=True)
    step = step_of(done, f"dws.{name}")
    assert Counter(map(canonical, project.rows(f"dws.{name}"))) == expected
    before = {canonical(key) for key in keys_of(kind, (*kind.stay, *kind.before))}
    touched = {canonical(key) for key in keys_of(kind, (*kind.before, *kind.after))}
    assert counted(done, f"dws.{name}") == f"{len(touched)} of {len(before)}"
    assert step.rows == sum(row[: len(kind.types)] in touched for row in expected)


MANY = """
rn.source("ods.rows", rn.files("data/rows/*.parquet"))
rn.source("ods.more", rn.files("data/more/*.csv", schema="n long, v long"))


@rn.task("dws.one", by="n")
def one(rows, more):
    every = rows.select("n", "v").union(more.select("n", "v"))
    return every.groupBy("n").agg(F.sum("v").alias("total"))


@rn.task("dws.pair", by=["n", "s"])
def pair(rows):
    return rows.groupBy("n", "s").agg(F.sum("v").alias("total"))


@rn.task("dws.rolled", by="n", lookback={"rows": 2}, trust_by=True)
def rolled(rows, more):
    spread = rows.select("n", "v", F.explode(F.sequence(F.lit(0), F.lit(2))).alias("k")).selectExpr("n + k AS n", "v")
    every = spread.union(more.select("n", "v"))
    return every.groupBy("n").agg(F.sum("v").alias("total"))
"""
MANY_LAW = {
    "dws.one": "select n, sum(v)::long from (select n, v from rows union all select n, v from more) group by n",
    "dws.pair": "select n, s, sum(v)::long from rows group by all",
    "dws.rolled": """
        select n, sum(v)::long from (
            select n + k as n, v from rows, (values (0), (1), (2)) t(k) union all select n, v from more
        ) group by n""",
}


def test_more_keys_than_a_condition_holds(project: Project) -> None:
    """Two of three slices would be computed in full, so a third of 6,000 changes."""

    def rows(file: str, numbers: Iterable[int], v: int) -> None:
        target = project.root / f"data/rows/{file}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        found = list(numbers)
        texts = ["odd" if number % 2 else None for number in found]
        pq.write_table(pa.table({"n": pa.array(found, pa.int64()), "s": texts, "v": [v] * len(found)}), target)

    project.flow(MANY, orders=None)
    rows("stay", [number * 10 for number in range(6000)], 1)
    rows("moves", [number * 10 for number in range(1500)], 2)
    project.write("data/more/a.csv", "n,v\n7,7\n")
    assert not project.run().errors
    rows("moves", [number * 10 + 20 for number in range(1500)], 3)  # two go, two come, all others change
    project.write("data/more/b.csv", "n,v\n59990,1\n")
    done = project.run()
    for table, sql in MANY_LAW.items():
        assert project.rows(table) == oracle(project, sql, "ods.rows", "ods.more"), table
    assert {table: step_of(done, table).rows for table in MANY_LAW} == {
        "dws.one": 1503,
        "dws.pair": 1502,
        "dws.rolled": 1502 * 3 + 1,
    }
