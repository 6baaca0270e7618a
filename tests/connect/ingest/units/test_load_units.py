"""Files that are loaded by hand in units, large ones in splits: rows, types, counts and errors of one process."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.connect.files.format_reader import CsvOptions
from runnel.connect.ingest.units.load_units import prepare_load_in_units
from runnel.connect.load.load import LoadOptions, UnitLoading, load_files
from runnel.errors import RunnelError
from runnel.lake.iceberg import table_metadata
from runnel.lake.store import Store
from runnel.lake.work_runner import ChooseRunner, WorkContext
from runnel.model.work_place import EXECUTORS, PROCESS, WorkPlaceRules
from runnel.names import TableName
from runnel.spark.executors.runner_choice import RunnerChoice
from tests.lake.factories import read
from tests.lake.pickling_runner import PicklingRunner

ORDERS = TableName.parse("ods.orders")
ONE_LINE = CsvOptions(multiline=False)
Files = dict[str, str]
Load = tuple[Files, dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path / "files")
    return tmp_path


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[Any]:
    stores: list[Store] = []

    def open_store() -> Store:
        root = tmp_path / f"lake{len(stores)}"
        stores.append(Store.open(f"sqlite:///{root}/catalog.db", f"{root}/warehouse"))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def load(store: Store, patterns: list[str], options: LoadOptions, choose_runner: ChooseRunner) -> dict[str, Any]:
    """Load, and return what users see of it."""
    unit_loading = UnitLoading(WorkContext(choose_runner), prepare_load_in_units)
    try:
        result = load_files(store, ORDERS, patterns, options, unit_loading=unit_loading)
    except RunnelError as error:
        return {"error": (error.code, error.what, error.at, error.fix)}
    facts = {name: value for name, value in asdict(result).items() if name not in ("commit", "place")}
    metadata = table_metadata.load_metadata(store, store.state()[ORDERS].location)
    commit_message = result.commit.message if result.commit else None
    return {
        **facts,
        "message": commit_message,
        "schema": str(metadata.schema()),
        "spec": str(metadata.spec()),
        "rows": sorted(map(repr, read(store, "ods.orders"))),
    }


LINES = "".join(f"{number},name {number},{number}.5\n" for number in range(20))
CASES: dict[str, list[Load]] = {
    # the files of each load, and its options
    "inferred types that the last split decides": [({"a.csv": f"id,name,v\n{LINES}x,y,2\n"}, {"csv": ONE_LINE})],
    "several files with other columns": [
        ({"a.csv": f"id,name,v\n{LINES}", "b.csv": "note,id\nlate,7\n"}, {"csv": ONE_LINE})
    ],
    "a new column of an existing table": [
        ({"a.csv": "id\n1\n"}, {}),
        ({"b.csv": f"id,name,v\n{LINES}"}, {"csv": ONE_LINE}),
        ({"c.csv": "id,name,w\n1,a,2\n"}, {"csv": ONE_LINE, "on_new_column": "stop"}),
    ],
    "bad rows that are dropped": [
        ({"a.csv": f"id,name,v\n{LINES}x,bad,1\n30,bad\n"}, {"schema": "id int, v double", "on_bad": "drop"})
    ],
    "bad rows that stop it": [
        (
            {"a.csv": f"id,name,v\n{LINES}x,bad,1\n30,bad\n", "b.csv": "id,name,v\ny,a,1\n"},
            {"schema": "id int not null, name string, v double", "csv": ONE_LINE},
        )
    ],
    "no header": [
        ({"a.csv": LINES}, {"schema": "id int, name string, v double", "csv": CsvOptions(header=False)}),
        ({"b.csv": LINES}, {"csv": CsvOptions(header=False, multiline=False)}),
    ],
    "JSON lines": [
        (
            {
                "a.jsonl": "".join(f'{{"id": {n}, "{"ab"[n % 2]}": [{n}]}}\n' for n in range(20)),
                "b.jsonl": '{"id": "x"}',
            },
            {},
        )
    ],
    "columns that JSON lines lack": [
        ({"a.jsonl": '{"id": 1}\n{"id": 2}\n'}, {"schema": "id long, note string"}),
        ({"a.jsonl": '{"id": 1}\n{"id": 2}\n'}, {"schema": "id long, note string", "missing_columns": "null"}),
    ],
    "a partitioned table that is replaced": [
        ({"a.csv": f"id,name,v\n{LINES}"}, {"partition": ["bucket(4, id)"], "key": ["id"], "csv": ONE_LINE}),
        ({"b.csv": "id,name,v\n1,a,1.5\n"}, {"replace": True}),
    ],
    "one of the files is empty": [({"a.csv": f"id,name,v\n{LINES}", "b.csv": ""}, {"csv": ONE_LINE})],
    "no file has rows": [({"a.jsonl": "\n"}, {})],
    "only a header": [({"a.csv": "id,name\n"}, {"csv": ONE_LINE})],
    "one of the files is damaged": [({"a.csv": f"id,name,v\n{LINES}", "b.csv": 'id,v\n1,"2\n'}, {"csv": ONE_LINE})],
}


@pytest.mark.cluster
@pytest.mark.parametrize("loads", CASES.values(), ids=CASES)
def test_loads_in_units_equal_those_of_one_process(folder: Path, new_store: Any, loads: list[Load]) -> None:
    in_process = RunnerChoice(WorkPlaceRules(), pytest.fail, "load")
    places: dict[str, tuple[Store, ChooseRunner]] = {
        "process": (new_store(), in_process),
        "units": (new_store(), PicklingRunner()),
        "splits": (new_store(), PicklingRunner(split_bytes=100)),
    }
    for files, options in loads:
        for name, contents in files.items():
            (folder / "files" / name).write_text(contents)
        facts = {
            place: load(store, list(files), LoadOptions(**options), choose_runner)
            for place, (store, choose_runner) in places.items()
        }
        assert facts["units"] == facts["process"]
        assert facts["splits"] == facts["process"]


@pytest.mark.cluster
def test_a_large_file_is_read_in_splits(folder: Path, new_store: Any) -> None:
    table = pa.table({"id": range(1000), "name": [str(number) for number in range(1000)]})
    pq.write_table(table, folder / "files" / "a.parquet", row_group_size=100)
    store, runner = new_store(), PicklingRunner(split_bytes=2000)
    assert load(store, ["a.parquet"], LoadOptions(), runner)["rows"] == sorted(
        map(repr, zip(range(1000), map(str, range(1000)), strict=True))
    )
    assert len(runner.units) > 3


def test_the_place_depends_on_the_size_and_on_where_files_are(folder: Path, new_store: Any) -> None:
    (folder / "files" / "a.csv").write_text(f"id,name,v\n{LINES}")
    store = new_store()
    cases = {
        PROCESS: WorkPlaceRules("executors", has_cluster=True),
        EXECUTORS: WorkPlaceRules("auto", has_cluster=True, executors_from_bytes=10, shared_folders=(str(folder),)),
    }
    for name, rules in cases.items():
        runner = PicklingRunner()

        def choose_runner(byte_count: Any, paths: Any, rules: WorkPlaceRules = rules, runner: Any = runner) -> Any:
            place = rules.choose(byte_count, paths)
            assert place.name != PROCESS or f"{folder}/files/a.csv is on this machine only" in place.reason
            return runner if place.name == EXECUTORS else RunnerChoice(rules, pytest.fail, "load")(byte_count, paths)

        unit_loading = UnitLoading(WorkContext(choose_runner), prepare_load_in_units)
        result = load_files(store, ORDERS, ["a.csv"], unit_loading=unit_loading)
        assert result.place is not None
        assert (result.place.name, result.rows, bool(runner.units)) == (name, 20, name == EXECUTORS)
