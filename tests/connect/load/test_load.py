"""Loading: types, schema evolution, policies, replace, and what the commit says."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.load.load import LoadOptions, load_files
from runnel.errors import Mistake
from runnel.lake.history.commits import CommitChange, read_changes
from runnel.lake.iceberg import table_metadata
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.names import TableName
from tests.connect.conftest import Loading, Writing
from tests.lake.factories import read

ORDERS = TableName.parse("ods.orders")
AT = datetime(2026, 1, 2, 10, tzinfo=UTC)


def metadata(store: Store):
    return table_metadata.load_metadata(store, store.state()[ORDERS].location)


def types(store: Store) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in metadata(store).schema().fields}


TEXTS = {
    "whole numbers": (["1", "-2"], "long", [1, -2]),
    "leading zeros are text": (["007", "1"], "string", ["007", "1"]),
    "beyond a long": (["9223372036854775808", "1"], "decimal(38, 0)", [Decimal(9223372036854775808), Decimal(1)]),
    "fractions are doubles": (["1.5", "2"], "double", [1.5, 2.0]),
    "more digits than a double holds": (["1234567890123456789.5", "1"], "string", ["1234567890123456789.5", "1"]),
    "booleans": (["true", "False"], "boolean", [True, False]),
    "dates": (["2026-01-02", "1999-12-31"], "date", [date(2026, 1, 2), date(1999, 12, 31)]),
    "no such date": (["2026-01-02", "2026-02-30"], "string", ["2026-01-02", "2026-02-30"]),
    "times with a zone": (["2026-01-02T18:00:00+08:00", "2026-01-02T10:00:00Z"], "timestamptz", [AT, AT]),
    "times without a zone are UTC": (["2026-01-02 10:00", "2026-01-02T10:00:00"], "timestamptz", [AT, AT]),
    "mixed": (["1", "x"], "string", ["1", "x"]),
    "nothing at all": (["", ""], "string", [None, None]),
    "null among numbers": (["", "4"], "long", [None, 4]),
    "quoted and empty": (['""', "x"], "string", ["", "x"]),
    "quoted and empty among numbers": (['""', "4"], "long", [None, 4]),
    "words for numbers": (["nan", "1.5"], "string", ["nan", "1.5"]),
}


def test_types_are_inferred_over_all_rows_of_all_files(store: Store, data: Writing, loading: Loading):
    for row in range(2):
        data(f"{row}.csv", ",".join(["row", *TEXTS]) + f"\n{row}," + ",".join(case[0][row] for case in TEXTS.values()))
    assert loading("*.csv").rows == 2
    found = zip(*read(store, "ods.orders"), strict=True)
    kinds = types(store)
    assert {name: (kinds[name], list(values)) for name, values in zip(["row", *TEXTS], found, strict=True)} == {
        "row": ("long", [0, 1]),
        **{name: (kind, values) for name, (_, kind, values) in TEXTS.items()},
    }


DECLARED = {
    "long": ("long", "007", 7),
    "spaces around a number": ("int", " 7 ", 7),
    "decimal": ("decimal(12,2)", "1.50", Decimal("1.50")),
    "zeros beyond the scale": ("decimal(12,2)", "1.5000", Decimal("1.50")),
    "string": ("string", "007", "007"),
    "boolean": ("boolean", "1", True),
    "date": ("date", "2026-1-2", date(2026, 1, 2)),
    "timestamp": ("timestamp", "2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
    "timestamp_ntz": ("timestamp_ntz", "2026-01-02 10:00:00.5", datetime(2026, 1, 2, 10, 0, 0, 500000)),
    "binary in base64": ("binary", "aGk=", b"hi"),
    "double": ("double", "1e3", 1000.0),
}


def test_declared_types(store: Store, data: Writing, loading: Loading):
    schema = ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in DECLARED.items())
    data("a.csv", ",".join(DECLARED) + "\n" + ",".join(text for _, text, _ in DECLARED.values()) + "\n")
    loading("a.csv", schema=schema)
    (row,) = read(store, "ods.orders")
    assert dict(zip(DECLARED, row, strict=True)) == {name: value for name, (_, _, value) in DECLARED.items()}


FORMATS = {
    "orders.csv": "id,name\n1,a\n2,b\n",
    "orders.csv.gz": "id,name\n1,a\n2,b\n",
    "orders.tsv": "id\tname\n1\ta\n2\tb\n",
    "orders.jsonl": '{"id": 1, "name": "a"}\n\n{"id": 2, "name": "b"}\n',
    "orders.ndjson.gz": '{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}',
    "orders[1]*.csv": "id,name\n1,a\n2,b\n",
    "bom.csv": b"\xef\xbb\xbfid,name\r\n1,a\r\n2,b\r\n",
    "order.csv": "name,id\na,1\nb,2\n",
}


@pytest.mark.parametrize(("name", "contents"), FORMATS.items(), ids=FORMATS)
def test_formats(store: Store, data: Writing, loading: Loading, name, contents):
    data(name, contents)
    loading(name, schema="id long, name string")
    assert read(store, "ods.orders") == [(1, "a"), (2, "b")]


DIALECTS = {
    "delimiter": ("1;'a;b'\n", CsvOptions(delimiter=";", quote="'", header=False), [(1, "a;b")]),
    "null": ("id,v\n1,NA\n", CsvOptions(null="NA"), [(1, None)]),
    "latin-1": ("id,v\n1,é\n".encode("latin-1"), CsvOptions(encoding="latin-1"), [(1, "é")]),
    "utf-16": ("id,v\n1,é\n".encode("utf-16"), CsvOptions(encoding="utf-16"), [(1, "é")]),
    "no quotes": ('id,v\n1,a"b\n', CsvOptions(quote=""), [(1, 'a"b')]),
}


@pytest.mark.parametrize(("contents", "options", "rows"), DIALECTS.values(), ids=DIALECTS)
def test_dialects_of_csv(store: Store, data: Writing, loading: Loading, contents, options, rows):
    loading(data("a.csv", contents), csv=options)
    assert read(store, "ods.orders") == rows


def test_nested_json(store: Store, data: Writing, loading: Loading):
    first = '{"id": 1, "who": {"name": "a", "tags": ["x"]}, "n": [1, 2], "mixed": 1}\n{"id": 2, "mixed": {"a": 1}}\n'
    loading(data("a.jsonl", first))
    loading(data("b.jsonl", '{"id": 3, "who": {"tags": []}, "n": [], "mixed": null}\n'))
    assert read(store, "ods.orders") == [
        (1, {"name": "a", "tags": ["x"]}, [1, 2], "1"),
        (2, None, None, '{"a":1}'),
        (3, {"name": None, "tags": []}, [], None),
    ]


def test_json_into_a_declared_map(store: Store, data: Writing, loading: Loading):
    loading(data("a.jsonl", '{"id": 1, "m": {"a": 1, "b": 2}}\n'), schema="id long, m map<string, long>")
    assert read(store, "ods.orders") == [(1, {"a": 1, "b": 2})]


def test_parquet_keeps_its_types(store: Store, data: Writing, loading: Loading):
    rows = pa.table(
        {
            "i": pa.array([1], pa.int32()),
            "u": pa.array([2**64 - 1], pa.uint64()),
            "d": pa.array([Decimal("1.50")], pa.decimal128(12, 2)),
            "n": pa.array([datetime(2026, 1, 2)], pa.timestamp("us")),
            "z": pa.array([AT], pa.timestamp("ns", "UTC")),
            "filename": pa.array(["x"]),
            "l": pa.array([[1.5]], pa.list_(pa.float64())),
            "c": pa.array(["a"]).dictionary_encode(),
            "x": pa.array([b"abcd"], pa.binary(4)),
            "w": pa.array([UUID(int=1).bytes], pa.uuid()),
        }
    )
    pq.write_table(rows, "a.parquet")
    loading("a.parquet")
    assert read(store, "ods.orders") == [
        (1, Decimal(2**64 - 1), Decimal("1.50"), datetime(2026, 1, 2), AT, "x", [1.5], "a", b"abcd", str(UUID(int=1)))
    ]
    assert types(store)["i"] == "int"


def test_a_hive_path_adds_columns(store: Store, data: Writing, loading: Loading):
    data("day=2026-01-02/keep", "")
    data("day=__HIVE_DEFAULT_PARTITION__/keep", "")
    pq.write_table(pa.table({"id": [1]}), "day=2026-01-02/a.parquet")
    pq.write_table(pa.table({"id": [2]}), "day=__HIVE_DEFAULT_PARTITION__/a.parquet")
    loading("**/*.parquet")
    assert read(store, "ods.orders") == [(1, date(2026, 1, 2)), (2, None)]


EVOLVED = {
    "same columns": ("id,v\n2,5\n", {}, {"id": "long", "v": "int"}, (2, 5)),
    "other case and order": ("V,ID\n5,2\n", {}, {"id": "long", "v": "int"}, (2, 5)),
    "a missing column is null": ("id\n2\n", {}, {"id": "long", "v": "int"}, (2, None)),
    "a new column is added": ("id,w\n2,x\n", {}, {"id": "long", "v": "int", "w": "string"}, (2, None, "x")),
    "a new column is ignored": ("id,w\n2,x\n", {"on_new_column": "ignore"}, {"id": "long", "v": "int"}, (2, None)),
    "int becomes long": ("id,v\n2,3000000000\n", {}, {"id": "long", "v": "long"}, (2, 3000000000)),
    "a narrow declaration": ("id,v\n2,5\n", {"schema": "v int"}, {"id": "long", "v": "int"}, (2, 5)),
}


@pytest.mark.parametrize(("contents", "options", "kinds", "row"), EVOLVED.values(), ids=EVOLVED)
def test_evolution(store: Store, data: Writing, loading: Loading, contents, options, kinds, row):
    loading(data("a.csv", "id,v\n1,1\n"), schema="id long, v int")
    loaded = loading(data("b.csv", contents), **options)
    assert types(store) == kinds
    assert [found for found in read(store, "ods.orders") if found[0] == 2] == [row]
    assert loaded.new_columns == tuple(name for name in kinds if name not in ("id", "v"))


def test_widened_types(store: Store, data: Writing, loading: Loading):
    loading(data("a.csv", "d,f\n1.50,1.5\n"), schema="d decimal(4,2), f float")
    pq.write_table(pa.table({"d": pa.array([Decimal("12345.50")], pa.decimal128(9, 2)), "f": [0.1]}), "b.parquet")
    loading("b.parquet")
    assert types(store) == {"d": "decimal(18, 2)", "f": "double"}
    assert read(store, "ods.orders") == [(Decimal("1.50"), 1.5), (Decimal("12345.50"), 0.1)]


REFUSED = {
    "a new column, stopped": ("id,vv\n2,x\n", {"on_new_column": "stop"}, "LOAD_NEW_COLUMN", "`v`"),
    "int stays int": ("id,v\n2,3000000000\n", {"on_new_column": "stop"}, "LOAD_BAD_ROWS", "line 2, column `v`"),
    "no column of the table": ("x,y\n2,3\n", {}, "LOAD_COLUMNS_UNKNOWN", "`id`"),
    "a declared column is missing": ("id\n2\n", {"schema": "idd long"}, "LOAD_COLUMN_MISSING", "`id`"),
    "declared otherwise": ("id,v\n2,3\n", {"schema": "v date"}, "LOAD_TYPE", "`v` is date"),
    "another partition": ("id,v\n2,3\n", {"partition": ["v"]}, "LOAD_PARTITION", "differently"),
    "unknown key": ("id,v\n2,3\n", {"key": ["idd"]}, "LOAD_KEY", "`id`"),
    "new and required": ("id,w\n2,3\n", {"schema": "w long not null"}, "LOAD_TYPE", "NOT NULL"),
    "unknown branch": ("id,v\n2,3\n", {"branch": "mian"}, "BRANCH_UNKNOWN", "main"),
    "bad schema": ("id,v\n2,3\n", {"schema": "id longg"}, "SCHEMA_SYNTAX", "longg"),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Open a lake with a table that no refused load changes."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "a.csv").write_text("id,v\n1,1\n")
    store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
    load_files(store, ORDERS, [str(folder / "a.csv")], LoadOptions(schema="id long, v int"))
    yield store
    store.close()


@pytest.mark.parametrize(("contents", "options", "code", "hint"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused(filled: Store, data: Writing, contents, options, code, hint):
    before = filled.commit()
    with pytest.raises(Mistake, match=hint) as caught:
        load_files(filled, ORDERS, [data("b.csv", contents)], LoadOptions(**options))
    assert (caught.value.code, filled.commit()) == (code, before)


def test_the_commit_says_what_was_loaded(store: Store, data: Writing, loading: Loading):
    data("a.csv", "id,v\n1,x\n")
    data("b.csv", "id,v\n2,y\n3\n")
    loaded = loading("*.csv", on_bad="drop")
    assert (loaded.files, loaded.rows, loaded.dropped, loaded.created) == (2, 2, 1, True)
    assert loaded.commit is not None
    assert loaded.commit.message == "load ods.orders: 2 files, 2 rows, 1 bad dropped"
    (change,) = store.db.read(lambda connection: read_changes(connection, loaded.commit.id))
    files = [{"name": "a.csv", "bytes": 9}, {"name": "b.csv", "bytes": 11}]
    assert change.detail == {"load": {"files": files, "rows": 2, "dropped": 1}}


def test_replace_removes_the_rows_that_were_there(store: Store, data: Writing, loading: Loading):
    loading(data("a.csv", "id,v\n1,x\n"))
    loading(data("a.csv", "id,v\n2,y\n"))
    before = store.commit()
    loading(data("b.csv", "id,v\n3,z\n"), replace=True)
    assert read(store, "ods.orders") == [(3, "z")]
    assert len(read(store, "ods.orders", before.id)) == 2


def test_a_header_alone_makes_an_empty_table_and_then_nothing(store: Store, data: Writing, loading: Loading):
    assert loading(data("a.csv", "id,v\n"), schema="id long").rows == 0
    assert types(store) == {"id": "long", "v": "string"}
    before = store.commit()
    assert loading("a.csv").commit is None
    assert store.commit() == before


def test_key_and_partitions_of_a_new_table(store: Store, data: Writing, loading: Loading):
    rows = "id,day,at\n1,2026-01-02,2026-01-02T10:00:00Z\n2,2026-01-03,1969-12-31T23:00:00Z\n3,,\n"
    loading(data("a.csv", rows), partition=["day", "month(at)", "bucket(4, id)"], key=["ID"])
    assert metadata(store).properties["runnel.key"] == "id"
    assert [str(field.transform) for field in metadata(store).spec().fields] == ["identity", "month", "bucket[4]"]
    assert len(read(store, "ods.orders")) == 3
    handle = table_metadata.open_table(store, ORDERS, store.state()[ORDERS].location)
    assert handle.scan(row_filter="at < '1970-01-01T00:00:00+00:00'").to_arrow().column("id").to_pylist() == [2]
    assert handle.scan(row_filter="id = 3").to_arrow().num_rows == 1


OTHERS = {
    "a task's table": ({"runnel.made_by": "task"}, "LOAD_TASK_TABLE"),
    "a table of files": ({"runnel.kind": "files"}, "LOAD_FILES_TABLE"),
    "a source's table": ({"runnel.source": "files"}, "LOAD_SOURCE_TABLE"),
}


@pytest.mark.parametrize(("properties", "code"), OTHERS.values(), ids=OTHERS)
def test_tables_that_are_not_filled_by_hand(store: Store, data: Writing, loading: Loading, properties, code):
    loading(data("a.csv", "id\n1\n"))
    base = store.state()[ORDERS].location
    made = table_metadata.stage_update(store, metadata(store), base, [SetPropertiesUpdate(updates=properties)])[0]
    publish(store.db, CommitDraft("main", "run", "ada", (CommitChange(ORDERS, base, made),)))
    with pytest.raises(Mistake) as caught:
        loading("a.csv")
    assert caught.value.code == code


def test_progress_is_told(data: Writing, loading: Loading):
    told: list[tuple[str, int, int | None]] = []
    loading(data("a.csv", "id\n1\n2\n"), progress=lambda *step: told.append(step))
    in_units = [(f"{step} on executors", 1, 1) for step in ("inspecting", "checking", "writing")]
    # While executors work, their progress is reported several times a second, even if nothing changed.
    finished = dict.fromkeys(step for step in told if step[2] is None or step[1] == step[2])
    assert list(finished) in ([("checking", 0, None), ("writing", 2, None)], in_units)


def test_nanoseconds_of_parquet_are_cut_towards_the_past(loading: Loading, store: Store, tmp_path: Path) -> None:
    """Also inside of structs, lists and maps; another file of the load may have microseconds."""
    moments = pa.array([1767225599999999999, -1, -1001, None], pa.int64())
    columns = {
        "at": moments.cast(pa.timestamp("ns")),
        "utc": moments.cast(pa.timestamp("ns", tz="UTC")),
        "s": pa.array([{"t": at} for at in moments.to_pylist()], pa.struct([("t", pa.timestamp("ns"))])),
        "l": pa.array([[[at]] for at in moments.to_pylist()], pa.list_(pa.list_(pa.timestamp("ns")))),
        "m": pa.array([[("k", at)] for at in moments.to_pylist()], pa.map_(pa.string(), pa.timestamp("ns"))),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    pq.write_table(pa.table({"at": pa.array([5], pa.timestamp("us"))}), tmp_path / "b.parquet")
    loading(str(tmp_path / "*.parquet"))
    rows = [row for row in read(store, "ods.orders") if row[0] != datetime(1970, 1, 1, 0, 0, 0, 5)]
    last, before, earlier = (
        datetime(2025, 12, 31, 23, 59, 59, 999_999),
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(1969, 12, 31, 23, 59, 59, 999_998),
    )
    assert len(rows) == 4
    for at, utc, struct, nested_list, mapping in rows:
        assert at in (last, before, earlier, None)
        assert (utc.replace(tzinfo=None) if utc else None) == at
        assert (struct, nested_list, dict(mapping)) == ({"t": at}, [[at]], {"k": at})
    assert {row[0] for row in rows} == {last, before, earlier, None}


def test_durations_of_parquet_are_numbers_with_a_comment(loading: Loading, store: Store, tmp_path: Path) -> None:
    pq.write_table(pa.table({"lag": pa.array([1_500_000_000, None], pa.duration("ns"))}), tmp_path / "a.parquet")
    loading(str(tmp_path / "a.parquet"))
    assert sorted(read(store, "ods.orders"), key=str) == [(1_500_000_000,), (None,)]

    assert metadata(store).schema().fields[0].doc == "duration in nanoseconds"


def test_a_type_that_iceberg_lacks_is_named(loading: Loading, tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([1], pa.time32("ms"))}), tmp_path / "a.parquet")
    with pytest.raises(
        Mistake, match=r"the column `at` of .*a.parquet has the type time32\[ms\], which Iceberg can't hold"
    ):
        loading(str(tmp_path / "a.parquet"))
