"""Values of every type, and those that no lake holds; names that need quotes."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from runnel.errors import Mistake, RunnelError
from tests.connect.jdbc.source_databases import IN_BOTH_PLACES, Shop, feed_of, fetched

pytestmark = pytest.mark.postgres
POSTGRES = {
    "bool": ("true", "bool", True),
    "int2": ("7::int2", "int32", 7),
    "int4": ("7", "int32", 7),
    "int8": ("9223372036854775807", "int64", 2**63 - 1),
    "float4": ("1.5::float4", "float", 1.5),
    "float8": ("1e300::float8", "double", 1e300),
    "infinite": ("'-Infinity'::float8", "double", float("-inf")),
    "few digits": ("(-12.30)::numeric(12,2)", "decimal128(12, 2)", Decimal("-12.30")),
    "no fraction": ("12::numeric(5)", "decimal128(5, 0)", Decimal(12)),
    "many digits": ("12345678901234567890.12::numeric(30,2)", "decimal128(30, 2)", Decimal("12345678901234567890.12")),
    "any digits": ("0.000000000000000001::numeric", "decimal128(38, 18)", Decimal("0.000000000000000001")),
    "text": ("'naïve 漢字'", "string", "naïve 漢字"),
    "varchar": ("'a'::varchar(3)", "string", "a"),
    "bytes": (r"'\x0001'::bytea", "binary", b"\x00\x01"),
    "date": ("date '2026-01-02'", "date32[day]", date(2026, 1, 2)),
    "first day": ("date '0001-01-01'", "date32[day]", date(1, 1, 1)),
    "last moment": (
        "timestamp '9999-12-31 23:59:59.999999'",
        "timestamp[us]",
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
    "zone": ("timestamptz '2026-01-02 10:00+08'", "timestamp[us, tz=UTC]", datetime(2026, 1, 2, 2, tzinfo=UTC)),
    "time": ("time '10:00:01'", "string", "10:00:01"),
    "interval": ("interval '1 day'", "string", "P1D"),
    "json": ("""'{"a": 1}'::json""", "string", '{"a": 1}'),
    "jsonb": ("""'{"a":1}'::jsonb""", "string", '{"a": 1}'),
    "uuid": (
        "'9d36d428-793f-4ee6-9b94-1f8e8e3b7a5d'::uuid",
        "string",
        "9d36d428-793f-4ee6-9b94-1f8e8e3b7a5d",
    ),
    "enum": ("'sad'::mood", "string", "sad"),
    "oid": ("4294967295::oid", "int64", 4294967295),
    "inet": ("'10.0.0.1'::inet", "string", "10.0.0.1/32"),
    "list": ("array[1, null, 3]", "list<element: int32>", [1, None, 3]),
    "list of decimals": ("array[1.5, 2]::numeric[]", "string", "{1.5,2}"),
    "null": ("null::numeric(5,2)", "decimal128(5, 2)", None),
}


def test_every_type_of_postgresql(pg: Shop) -> None:
    pg.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    columns = ", ".join(f'{sql} AS "{name}"' for name, (sql, *_) in POSTGRES.items())
    pg.execute(f"CREATE TABLE orders AS SELECT {columns}")
    rows, _ = fetched(pg)
    found = {name: (str(rows.schema.field(name).type), rows.column(name)[0].as_py()) for name in POSTGRES}
    assert found == {name: (kind, value) for name, (_, kind, value) in POSTGRES.items()}


BAD = {
    "infinite date": ("date", "infinity", "infinity is not in the years 1 to 9999"),
    "infinite time": ("timestamptz", "-infinity", "-infinity is not in the years 1 to 9999"),
    "before our era": ("date", "0044-03-15 BC", "a date is not in the years 1 to 9999"),
    "no number": ("numeric(12,2)", "NaN", "'nan' does not fit decimal(12,2)"),
    "too long": ("numeric", "1e30", "does not fit decimal(38,18)"),
}


@IN_BOTH_PLACES
@pytest.mark.parametrize(("kind", "value", "told"), BAD.values(), ids=BAD)
def test_values_that_no_lake_holds(pg: Shop, kind: str, value: str, told: str) -> None:
    pg.execute(f"CREATE TABLE orders (id int, name text, v {kind})")
    pg.execute(f"INSERT INTO orders VALUES (1, 'good', NULL), (2, 'bad', '{value}')")
    with pytest.raises(RunnelError) as raised:
        fetched(pg)
    assert "1 row of orders can't be read" in str(raised.value)
    assert f"column `v`: {told}" in str(raised.value) or told in str(raised.value)
    rows, found = fetched(pg, "quarantine")
    assert rows.column("name").to_pylist() == ["good"]
    assert '"name": "bad"' in (found.bad_rows[0].raw or "") and "column `v`" in found.bad_rows[0].reason


def test_lists_of_several_dimensions_are_refused(pg: Shop) -> None:
    pg.execute("CREATE TABLE orders AS SELECT '{{1,2},{3,4}}'::int[] AS v")
    with pytest.raises(RunnelError, match="several dimensions"):
        fetched(pg)


SQLITE = {
    "id": ("INTEGER", 7, "int64", 7),
    "price": ("DECIMAL(12,2)", 12.3, "decimal128(12, 2)", Decimal("12.30")),
    "real": ("REAL", 1.5, "double", 1.5),
    "text": ("VARCHAR(10)", "a\x00b", "string", "a\x00b"),
    "blob": ("BLOB", b"\x00", "binary", b"\x00"),
    "day": ("DATE", "2026-01-02", "date32[day]", date(2026, 1, 2)),
    "at": ("DATETIME", "2026-01-02 10:00:01", "timestamp[us]", datetime(2026, 1, 2, 10, 0, 1)),
    "flag": ("BOOLEAN", 1, "bool", True),
    "any": ("", 5, "int64", 5),
    "numeric": ("NUMERIC", 1.5, "double", 1.5),
}


def test_every_type_of_sqlite(lite: Shop) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, *_) in SQLITE.items())
    lite.execute(f"CREATE TABLE orders ({columns})")
    given = tuple(value for _, value, *_ in SQLITE.values())
    lite.execute(f"INSERT INTO orders VALUES ({', '.join('?' * len(given))})", given)
    rows, _ = fetched(lite)
    found = {name: (str(rows.schema.field(name).type), rows.column(name)[0].as_py()) for name in SQLITE}
    assert found == {name: (kind, value) for name, (_, _, kind, value) in SQLITE.items()}


LOOSE = {
    "text in a number": ("INTEGER", "many", "'many' does not fit int64"),
    "no date": ("DATE", "soon", "'soon' does not fit date32[day]"),
    "too exact": ("DECIMAL(4,1)", 123456, "does not fit decimal(4,1)"),
    "no text": ("TEXT", b"\xff\xfe", "does not fit string"),
}


@pytest.mark.parametrize(("kind", "value", "told"), LOOSE.values(), ids=LOOSE)
def test_values_of_another_type_than_declared(lite: Shop, kind: str, value: Any, told: str) -> None:
    lite.execute(f"CREATE TABLE orders (id int, v {kind})")
    text = "CAST(? AS TEXT)" if kind == "TEXT" else "?"
    lite.execute(f"INSERT INTO orders VALUES (1, NULL), (2, {text})", (value,))
    with pytest.raises(RunnelError) as raised:
        fetched(lite)
    assert told in str(raised.value)
    rows, found = fetched(lite, "drop")
    assert rows.column("id").to_pylist() == [1] and len(found.bad_rows) == 1


NAMES = {
    "schema": ('CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 1 AS "select"', "s.t", ["select"]),
    "reserved": ('CREATE TABLE "order" AS SELECT 1 AS "Group By"', "order", ["Group By"]),
    "quotes": ('CREATE TABLE "a""b" AS SELECT 1 AS "c""d"', '"a""b"', ['c"d']),
    "dot": ('CREATE TABLE "a.b" AS SELECT 1 AS "ü"', '"a.b"', ["ü"]),
    "case": ('CREATE TABLE "Orders" AS SELECT 1 AS "Id"', "Orders", ["Id"]),
    "percent": ('CREATE TABLE "100%s" AS SELECT 1 AS "50%"', "100%s", ["50%"]),
}


@pytest.mark.parametrize(("made", "table", "columns"), NAMES.values(), ids=NAMES)
def test_names_that_need_quotes(pg: Shop, made: str, table: str, columns: list[str]) -> None:
    pg.execute(made)
    rows, found = fetched(pg, table=table)
    assert rows.column_names == columns and rows.num_rows == 1
    assert feed_of(pg, table=table).find_changes(found.state).is_empty


def test_a_large_value(pg: Shop) -> None:
    rows, _ = fetched(pg, query="select 1 as id, repeat('x', 50000000) as v")
    assert len(rows.column("v")[0].as_py()) == 50_000_000


@pytest.mark.parametrize("query", ["select from orders", "select id as a, id as a from orders"])
def test_columns_that_no_table_has(pg: Shop, query: str) -> None:
    pg.execute("CREATE TABLE orders AS SELECT 1 AS id")
    with pytest.raises(Mistake) as raised:
        fetched(pg, query=query)
    assert raised.value.code in ("SOURCE_NO_COLUMNS", "SOURCE_COLUMN_TWICE")


def test_a_column_of_another_type(pg: Shop) -> None:
    pg.execute("CREATE TABLE orders AS SELECT 1 AS id, 2 AS v")
    pg.flow('rn.source("ods.orders", rn.jdbc("{url}", table="orders"))')
    pg.run()
    pg.execute("ALTER TABLE orders ALTER COLUMN v TYPE bigint")
    pg.execute("UPDATE orders SET v = 5000000000")
    pg.run()
    assert pg.rows() == [(1, 5_000_000_000)]
    pg.execute("ALTER TABLE orders ALTER COLUMN v TYPE bytea USING '\\x00'::bytea")
    assert "the column `v` of orders is binary, which can't become long" in pg.error()
