"""The same question, the same answer: every entry of the corpus on both engines."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.query.allow_list import parse_allowed_query
from runnel.query.data_types import format_duckdb_type
from runnel.query.dialect.translate import DuckdbQuery, translate
from tests.query.conftest import SCHEMAS

pytestmark = pytest.mark.spark

ENTRY = re.compile(r"(duckdb|spark|error)\s*\| (.*)")
ENTRIES = [
    match.groups()
    for line in Path(__file__).with_name("corpus.txt").read_text(encoding="utf-8").splitlines()
    if (match := ENTRY.fullmatch(line))
]
QUERY = re.compile(r"\(?(select|with|values)\b", re.IGNORECASE)
LOOSE = re.compile(r"\b(sum|avg|stddev\w*|var\w*|percent_rank|cume_dist)\(")
QUICK = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
QUICK |= {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}
NAMES = {table: table.split(".")[1] for table in SCHEMAS}


def whole(entry: str) -> str:
    return entry if QUERY.match(entry) else f"select id, {entry} from lab.facts order by id"


@pytest.fixture(scope="module")
def duck(lab) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, path in lab.items():
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
        yield connection


@pytest.fixture(scope="module")
def ask_spark(spark, lab):
    """Ask Spark; expressions that should have an answer are asked together, once."""
    session = spark.newSession()
    for key, value in QUICK.items():
        session.conf.set(key, value)
    for name, path in lab.items():
        session.createDataFrame(pq.read_table(path)).createOrReplaceGlobalTempView(name)

    def ask(sql: str) -> pa.Table:
        frame = session.sql(
            parse_allowed_query(sql).spark_sql.replace("lab.", "global_temp.").replace("`lab`", "global_temp")
        )
        types = [field.dataType.simpleString() for field in frame.schema]
        return frame.toArrow().replace_schema_metadata({"types": ";".join(types)})

    together = [entry for engine, entry in ENTRIES if engine == "duckdb" and not QUERY.match(entry)]
    known: dict[str, pa.Table] = {}
    for start in range(0, len(together), 60):
        part = together[start : start + 60]
        answer = ask(f"select id, {', '.join(part)} from lab.facts order by id")
        types = answer.schema.metadata[b"types"].decode().split(";")
        for i, entry in enumerate(part, start=1):
            known[entry] = answer.select([0, i]).replace_schema_metadata({"types": f"{types[0]};{types[i]}"})

    return lambda entry: known[entry] if entry in known else ask(whole(entry))


def plain(value: object, loose: bool) -> object:
    """Return a value that compares as exactly as it should: NaN equal, both zeros apart, sums of doubles nearly."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return f"{value:.12g}" if loose else repr(value)
    if isinstance(value, dict):
        return {key: plain(item, loose) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, loose) for item in value]
    return value


def rows(answer: pa.Table, loose: bool, ordered: bool) -> list[object]:
    columns = [column.to_pylist() for column in answer.columns]
    found = [plain(list(row), loose) for row in zip(*columns, strict=True)]
    return found if ordered else sorted(found, key=repr)


def answered(duck: duckdb.DuckDBPyConnection, entry: str) -> tuple[DuckdbQuery, pa.Table] | None:
    found = translate(parse_allowed_query(whole(entry)), SCHEMAS, NAMES)
    if not isinstance(found, DuckdbQuery):
        return None
    try:
        return found, duck.sql(found.sql).to_arrow_table()
    except duckdb.Error:
        return None


@pytest.mark.parametrize(("engine", "entry"), ENTRIES, ids=[entry for _, entry in ENTRIES])
def test_both_engines_agree(duck, ask_spark, engine: str, entry: str) -> None:
    ours = answered(duck, entry)
    assert ("duckdb" if ours else "other") == ("duckdb" if engine == "duckdb" else "other")
    if ours is None:
        if engine == "error":
            with pytest.raises(Exception, match=r"\[[A-Z_.]+\]|requires window|is not supported"):
                ask_spark(entry)
        return
    found, answer = ours
    theirs = ask_spark(entry)
    assert [column.name for column in found.columns] == theirs.column_names
    assert ";".join(str(column.type) for column in found.columns) == theirs.schema.metadata[b"types"].decode()
    kinds = [str(kind).replace('"', "") for kind in duck.sql(found.sql).types]
    assert kinds == [format_duckdb_type(column.type).replace('"', "") for column in found.columns]
    loose = bool(LOOSE.search(entry))
    assert rows(answer, loose, found.ordered) == rows(theirs, loose, found.ordered)


def test_the_corpus_is_large_enough() -> None:
    assert len(ENTRIES) >= 250
    assert sum(engine == "duckdb" for engine, _ in ENTRIES) >= 200
    assert len({entry for _, entry in ENTRIES}) == len(ENTRIES)
