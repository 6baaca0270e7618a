"""Leaving files out changes no answer."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform

from runnel.lake.iceberg import table_metadata
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.store import Store
from runnel.names import TableName
from runnel.query.allow_list import parse_allowed_query
from runnel.query.dialect.translate import DuckdbQuery, translate
from runnel.query.file_pruning import prune_files
from runnel.query.pushdown_filters import derive_table_filters
from runnel.query.table_schemas import to_spark_types
from tests.lake.factories import add, create
from tests.lake.table_changes import delete_rows, evolve, files, partitions

DUCKDB = connect_duckdb()
LONG = "a common beginning of more than sixteen letters "
INTS = [None, -(2**31), -3, -1, 0, 1, 2, 7, 2**31 - 1]
LONGS = [None, -(2**63), -5, 0, 1, 3_000_000_000, 2**63 - 1]
DOUBLES = [None, float("nan"), float("-inf"), -1.5, -0.0, 0.0, 0.1, 3.0, float("inf")]
TEXTS = [None, "", "a", "ab", "abc", LONG + "a", LONG + "z", "\U0010ffff" * 20, "ä", "z", "Z"]
DECIMALS = [None, *map(Decimal, ("-99.99", "-0.01", "0.00", "0.01", "1.50", "99.99"))]
DAYS = [None, date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(2024, 3, 1)]
TIMES = [None, *(datetime(2024, 2, 29, tzinfo=UTC) + timedelta(hours=h, microseconds=h) for h in (-30, 0, 1, 23, 24))]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), INTS),
    "l": (pa.int64(), LONGS),
    "d": (pa.float64(), DOUBLES),
    "f": (pa.float32(), [None, 0.1, 2.5, float("nan")]),
    "s": (pa.string(), TEXTS),
    "m": (pa.decimal128(4, 2), DECIMALS),
    "day": (pa.date32(), DAYS),
    "at": (pa.timestamp("us", "UTC"), TIMES),
}
SPECS: dict[str, Any] = {
    "no partitions": lambda u: None,
    "identity": lambda u: (
        u.add_field("s", IdentityTransform(), "s_id"),
        u.add_field("d", IdentityTransform(), "d_id"),
    ),
    "bucket and truncate": lambda u: (
        u.add_field("l", BucketTransform(3), "l_b"),
        u.add_field("s", TruncateTransform(2), "s_t"),
        u.add_field("day", BucketTransform(2), "day_b"),
    ),
    "days": lambda u: (u.add_field("at", DayTransform(), "at_d"), u.add_field("day", IdentityTransform(), "day_i")),
}


def slices() -> Iterator[pa.Table]:
    """Yield small tables that each hold a few neighbouring values of every column, so that bounds tell them apart."""
    for start in range(12):
        held = {name: [values[(start + k) % len(values)] for k in (0, 1)] for name, (_, values) in COLUMNS.items()}
        arrays = {name: pa.array(held[name], COLUMNS[name][0]) for name in COLUMNS}
        yield pa.table({"id": pa.array([start * 2, start * 2 + 1], pa.int64()), **arrays})


@pytest.fixture(scope="module", params=SPECS.values(), ids=SPECS)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, str]]:
    folder = tmp_path_factory.mktemp("pruned")
    store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
    first, *rest = slices()
    create(store, "ods.t", first)  # a spec of its own: nothing is partitioned
    evolve(store, "ods.t", partitions(request.param))
    for part in rest:
        add(store, "ods.t", part)
    delete_rows(store, "ods.t", {files(store, "ods.t")[3].path: [0]})
    table = TableName.parse("ods.t")
    yield store, store.versions(store.commit(), [table])[table].location
    store.close()


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, datetime):
        return f"timestamp '{value:%Y-%m-%d %H:%M:%S.%f}'"
    return f"date '{value}'" if isinstance(value, date) else str(value)


def leaves() -> st.SearchStrategy[str]:
    def of(name: str) -> st.SearchStrategy[str]:
        usable = [v for v in COLUMNS[name][1] if v is not None and not (isinstance(v, float) and not abs(v) < 1e9)]
        usable = [v for v in usable if v not in (-(2**63), -(2**31))]
        one = st.sampled_from(usable).map(literal)
        compared = st.tuples(st.sampled_from(["=", "<", "<=", ">", ">="]), one).map(lambda p: f"{name} {p[0]} {p[1]}")
        turned = one.map(lambda value: f"{value} < {name}")
        among = st.lists(one, min_size=1, max_size=3).map(lambda values: f"{name} in ({', '.join(values)})")
        between = st.tuples(one, one).map(lambda p: f"{name} between {p[0]} and {p[1]}")
        nulls = st.sampled_from([f"{name} is null", f"{name} is not null", f"not ({name} is null)"])
        return st.one_of(compared, turned, among, between, nulls)

    prefixes = st.sampled_from(["", "a", "ab", LONG[:3], LONG + "a", "\U0010ffff"]).map(lambda p: f"s like '{p}%'")
    return st.one_of(*(of(name) for name in COLUMNS if name != "f"), prefixes, st.just("d <> 3"), st.just("not i = 1"))


def conditions() -> st.SearchStrategy[str]:
    def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})")

    return st.recursive(leaves(), joined, max_leaves=4)


FORMS = (
    "select id from ods.t where {0}",
    "select t.id from ods.t t where t.id >= 0 and ({0})",
    "select a.id, t.id as other from ods.t a left join (select * from ods.t where {0}) t on a.id = t.id + 1",
    "select a.id, b.n from ods.t a join (select id as n, i as k from ods.t) b on a.id = b.n where {0}",
    "select count(*) as n from ods.t where {0} union all select count(*) from ods.t where i = 1",
)


def answer(store: Store, location: str, sql: str, *, pruned: bool) -> list[tuple[Any, ...]]:
    parsed, metadata = parse_allowed_query(sql), table_metadata.load_metadata(store, location)
    wanted = derive_table_filters(parsed.tree, {"ods.t": metadata.schema()})["ods.t"] if pruned else AlwaysTrue()
    select = rows_sql(store, metadata, prune_files(store, metadata, wanted))
    found = translate(parsed, {"ods.t": to_spark_types(metadata.schema())}, {"ods.t": f"({select})"})
    assert isinstance(found, DuckdbQuery), found
    return sorted(DUCKDB.execute(found.sql).fetchall(), key=repr)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(condition=conditions(), form=st.sampled_from(FORMS))
@example("d > 3", FORMS[0])
@example("d = 0.1", FORMS[0])
@example("d >= 0.1 and s > 'z'", FORMS[0])
@example("s <= 'a common beginning of more than sixteen letters a'", FORMS[0])
def test_pruned_answers_equal_whole_ones(lake: tuple[Store, str], condition: str, form: str) -> None:
    store, location = lake
    sql = form.format(condition)
    assert answer(store, location, sql, pruned=True) == answer(store, location, sql, pruned=False)


PRUNED = {
    "a number": "i = 2147483647",
    "a range": "day between date '1969-01-01' and date '1969-12-31'",
    "text": "s > 'y' and s < 'zz'",
    "a prefix": "s like 'ab%'",
    "a time": "at < timestamp '2024-02-28 20:00:00'",
    "a decimal": "m in (99.99, 1.5)",
}


@pytest.mark.parametrize("condition", PRUNED.values(), ids=PRUNED)
def test_files_are_left_out(lake: tuple[Store, str], condition: str) -> None:
    store, location = lake
    metadata = table_metadata.load_metadata(store, location)
    tree = parse_allowed_query(f"select id from ods.t where {condition}").tree
    wanted = derive_table_filters(tree, {"ods.t": metadata.schema()})["ods.t"]
    assert 0 < len(prune_files(store, metadata, wanted)) < len(prune_files(store, metadata, AlwaysTrue())) * 2 / 3


UNUSED = {
    "null made by an outer join": "select 1 from ods.t a left join ods.u b on a.id = b.id where b.i is null",
    "another type": "select 1 from ods.u where i = 1.5",
    "a float": "select 1 from ods.u where f = 0.1",
    "not a number is above all": "select 1 from ods.u where d > 1",
    "a column of both": "select 1 from ods.t, ods.u where i = 1",
    "a function": "select 1 from ods.u where abs(i) = 1",
    "one side of OR": "select 1 from ods.u where i = 1 or abs(i) = 2",
    "read elsewhere without": "select (select max(i) from ods.u) from ods.u where i = 1",
    "renamed": "select 1 from ods.u as u(i, id) where i = 1",
    "a pattern": "select 1 from ods.u where s like 'a_b%'",
}


@pytest.mark.parametrize("sql", UNUSED.values(), ids=UNUSED)
def test_doubtful_conditions_are_left_alone(lake: tuple[Store, str], sql: str) -> None:
    store, location = lake
    schema = table_metadata.load_metadata(store, location).schema()
    found = derive_table_filters(parse_allowed_query(sql).tree, {"ods.t": schema, "ods.u": schema})
    assert isinstance(found["ods.u"], AlwaysTrue)
