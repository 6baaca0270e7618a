"""The translation itself: what it writes, what it refuses, and why."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.errors import Mistake
from runnel.query.allow_list import parse_allowed_query
from runnel.query.data_types import format_duckdb_type, parse_spark_type
from runnel.query.dialect.functions.patterns import translate_regex
from runnel.query.dialect.translate import DuckdbQuery, UntranslatableQuery, translate
from runnel.query.dialect.typed_expression import Untranslatable

SCHEMAS = {"a.x": {"i": "int", "j": "bigint", "d": "double", "c": "decimal(12,2)", "s": "string", "t": "timestamp"}}
TPCH = Path(__file__).parents[3] / "bench" / "tpch"
MONEY = "decimal(15,2)"
TPCH_SCHEMAS = {
    "tpch.region": {"r_regionkey": "bigint", "r_name": "string", "r_comment": "string"},
    "tpch.nation": {"n_nationkey": "bigint", "n_name": "string", "n_regionkey": "bigint", "n_comment": "string"},
    "tpch.supplier": {
        "s_suppkey": "bigint", "s_name": "string", "s_address": "string", "s_nationkey": "bigint", "s_phone": "string",
        "s_acctbal": MONEY, "s_comment": "string",
    },
    "tpch.customer": {
        "c_custkey": "bigint", "c_name": "string", "c_address": "string", "c_nationkey": "bigint", "c_phone": "string",
        "c_acctbal": MONEY, "c_mktsegment": "string", "c_comment": "string",
    },
    "tpch.part": {
        "p_partkey": "bigint", "p_name": "string", "p_mfgr": "string", "p_brand": "string", "p_type": "string",
        "p_size": "int", "p_container": "string", "p_retailprice": MONEY, "p_comment": "string",
    },
    "tpch.partsupp": {
        "ps_partkey": "bigint", "ps_suppkey": "bigint", "ps_availqty": "int", "ps_supplycost": MONEY,
        "ps_comment": "string",
    },
    "tpch.orders": {
        "o_orderkey": "bigint", "o_custkey": "bigint", "o_orderstatus": "string", "o_totalprice": MONEY,
        "o_orderdate": "date", "o_orderpriority": "string", "o_clerk": "string", "o_shippriority": "int",
        "o_comment": "string",
    },
    "tpch.lineitem": {
        "l_orderkey": "bigint", "l_partkey": "bigint", "l_suppkey": "bigint", "l_linenumber": "int",
        "l_quantity": MONEY, "l_extendedprice": MONEY, "l_discount": MONEY, "l_tax": MONEY, "l_returnflag": "string",
        "l_linestatus": "string", "l_shipdate": "date", "l_commitdate": "date", "l_receiptdate": "date",
        "l_shipinstruct": "string", "l_shipmode": "string", "l_comment": "string",
    },
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(TPCH.glob("q*.sql")), ids=lambda path: path.stem)
def test_tpch_translates_and_binds(path: Path) -> None:
    found = translate(parse_allowed_query(path.read_text()), TPCH_SCHEMAS)
    assert isinstance(found, DuckdbQuery), found
    assert "error(" not in found.sql or "too many digits" in found.sql
    with duckdb.connect() as connection:
        for table, columns in TPCH_SCHEMAS.items():
            listed = ", ".join(f"{name} {format_duckdb_type(parse_spark_type(to))}" for name, to in columns.items())
            connection.execute(f'CREATE TABLE "{table}" ({listed})')
        answer = connection.sql(found.sql)
        assert [str(kind) for kind in answer.types] == [format_duckdb_type(column.type) for column in found.columns]
        assert answer.columns == [column.name for column in found.columns]


def test_there_are_22_queries() -> None:
    assert len(list(TPCH.glob("q*.sql"))) == 22


def test_tables_get_the_names_that_the_engine_chose() -> None:
    found = translate(parse_allowed_query("select i from a.x"), SCHEMAS, {"a.x": 'main."v 1"'})
    assert isinstance(found, DuckdbQuery)
    assert 'FROM main."v 1" AS' in found.sql


REASONS = {
    "an unknown column": ("select nope from a.x", "nope"),
    "a function without a rule": ("select soundex(s) from a.x", "soundex"),
    "no name known": ("select interval 2 hours + t from a.x", "name"),
    "operators that sqlglot groups otherwise": (
        "select i = 1 is null from a.x where not i = j between 1 and 2",
        "brackets",
    ),
    "a comparison of a string with a number": ("select s = 1 as x from a.x", "a combination of string and int"),
    "two columns of a name": ("select i from a.x p, a.x q", "several columns"),
    "lost digits": ("select cast(c as decimal(38,20)) * c as x from a.x", "loses digits"),
    "a column without a type": ("select null as x", "type"),
    "qualify": ("select i from a.x qualify row_number() over (order by i) = 1", "clause"),
    "sample": ("select i from a.x tablesample (10 percent)", "sample"),
}


@pytest.mark.parametrize(("sql", "reason"), REASONS.values(), ids=REASONS)
def test_the_reason_is_told(sql: str, reason: str) -> None:
    found = translate(parse_allowed_query(sql), SCHEMAS)
    assert isinstance(found, UntranslatableQuery)
    assert reason in found.reason


PATTERNS = {
    "^a[0-9]+": "^a[0-9]+",
    "a.c": r"a[^\n\r\x{85}\x{2028}\x{2029}]c",
    r"\d+\s": r"[0-9]+[\t\n\x0B\f\r ]",
    r"[\w.-]+@x\.y": r"[a-zA-Z0-9_.-]+@x\.y",
    "(a|b){1,3}?": "(a|b){1,3}?",
    "(?:ab)*": "(?:ab)*",
}


@pytest.mark.parametrize(("java", "re2"), PATTERNS.items(), ids=PATTERNS)
def test_plain_regular_expressions_have_a_form(java: str, re2: str) -> None:
    assert translate_regex(java) == re2


@pytest.mark.parametrize(
    "java", [r"\bx", "(?i)a", "a++", r"\p{L}", "[a&&b]", "a{2", r"\1", "(?=a)", "a$b", "*a", "[[a]]"]
)
def test_other_regular_expressions_have_none(java: str) -> None:
    with pytest.raises(Untranslatable):
        translate_regex(java)


def test_nan_is_found_although_parquet_has_no_statistics_of_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"d": [1.0, float("nan")]}), tmp_path / "x.parquet")
    with duckdb.connect() as connection:
        for sql in (
            "select count(*) as n from a.x where d > 5",
            "select count(*) as n from a.x where d = cast('NaN' as double)",
        ):
            found = translate(parse_allowed_query(sql), SCHEMAS, {"a.x": f"read_parquet('{tmp_path}/x.parquet')"})
            assert isinstance(found, DuckdbQuery)
            assert connection.sql(found.sql).fetchall() == [(1,)]


def test_names_never_leave_their_quotes() -> None:
    name = 'x" ; drop table y; --'
    found = translate(parse_allowed_query("select * from a.x"), {"a.x": {name: "int"}})
    assert isinstance(found, DuckdbQuery)
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE "a.x" ("x"" ; drop table y; --" INTEGER)')
        assert connection.sql(found.sql).columns == [name]


@pytest.mark.parametrize(
    "text", ["decimal(12,2)", "array<struct<a:int,b:map<string,double>>>", "timestamp_ntz", "bigint"]
)
def test_types_are_read_and_written(text: str) -> None:
    assert str(parse_spark_type(text)) == text


@pytest.mark.parametrize("text", ["", "nope", "array<int", "array<int,int>", "int x", "struct<a>", "decimal(50,2)"])
def test_other_types_are_refused(text: str) -> None:
    with pytest.raises(Mistake) as caught:
        parse_spark_type(text)
    assert caught.value.code == "SQL_TYPE"
