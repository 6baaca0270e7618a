"""Nested values of JSON lines: each row is judged by itself, and new fields inside them follow `on_new_column`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from runnel.errors import Mistake
from tests.run.project import Project

SCHEMA = "id long, wind struct<kmh: int, gust: int>"
GOOD = [{"id": number, "wind": {"kmh": number}} for number in range(20)]


def declare(root: Path, schema: str = SCHEMA, **options: str) -> Project:
    project = Project(root)
    given = "".join(f', {name}="{value}"' for name, value in options.items())
    source = f'rn.source("ods.t", rn.files("data/*.jsonl", schema="{schema}"){given})'
    project.write("flows/flow.py", f"import runnel as rn\n\n{source}\n")
    return project


def lines(project: Project, name: str, *records: dict[str, Any]) -> None:
    project.write(f"data/{name}.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def ran(project: Project) -> list[tuple[Any, ...]]:
    done = project.run()
    assert not done.errors, str(done.errors[0])
    return project.rows("ods.t")


STRUCT, ARRAY, MAP = "struct<kmh: int, gust: int>", "array<int>", "map<string, int>"
DEEP = "struct<at: struct<x: int>, tags: array<struct<k: string>>, by: map<string, struct<n: int>>>"
BAD = {
    "a text for a struct": (STRUCT, {"kmh": 3}, "calm"),
    "a number for a struct": (STRUCT, {"kmh": 3}, 7),
    "an array for a struct": (STRUCT, {"kmh": 3}, [1]),
    "an object for an array": (ARRAY, [1, None], {"a": 1}),
    "a text for an array": (ARRAY, [1], "1"),
    "an array for a map": (MAP, {"a": 1}, [1]),
    "a boolean for a map": (MAP, {"a": 1}, True),
    "an object for a number": ("int", 3, {"a": 1}),
    "a wrong leaf": (STRUCT, {"kmh": 3}, {"kmh": "fast"}),
    "a leaf that is too large": (STRUCT, {"kmh": 3}, {"kmh": 2**40}),
    "an object for a leaf": (STRUCT, {"kmh": 3}, {"kmh": {"a": 1}}),
    "a text in a struct in a struct": (DEEP, {"at": {"x": 1}}, {"at": "here"}),
    "a text in an array of structs": (DEEP, {"tags": [{"k": "a"}, None]}, {"tags": [{"k": "a"}, "b"]}),
    "a number in a map of structs": (DEEP, {"by": {"a": {"n": 1}}}, {"by": {"a": {"n": 1}, "b": 3}}),
    "only the bad one": (STRUCT, None, "calm"),
}


def test_one_bad_value_costs_one_row(tmp_path: Path) -> None:
    """Each case is a table: its good rows are there, and the bad one alone is in quarantine, with its own reason."""
    project = Project(tmp_path)
    source = 'rn.source("ods.t{0}", rn.files("data/{0}/*.jsonl", schema="id long, v {1}"), on_bad="quarantine")\n'
    kinds = [kind for kind, _, _ in BAD.values()]
    project.write("flows/flow.py", "import runnel as rn\n\n" + "".join(map(source.format, range(len(kinds)), kinds)))
    for number, (_, good, wrong) in enumerate(BAD.values()):
        records = [{"id": at, "v": good} for at in range(3 if good is not None else 0)]
        lines(project, f"{number}/a", *records, {"id": 9, "v": wrong}, {"id": 8, "v": None})
    done = project.run()
    assert not done.errors, str(done.errors[0])
    with project.open() as lake:
        for number, (case, (kind, good, wrong)) in enumerate(BAD.items()):
            ids = [row[0] for row in lake.query(f"select id from ods.t{number} order by id").rows()]
            assert ids == [*range(3 if good is not None else 0), 8], case
            (aside,) = lake.quarantine(f"ods.t{number}")
            assert aside.raw == json.dumps({"id": 9, "v": wrong}), case
            assert aside.reason.endswith(f": not a{'n' if kind[0] in 'ai' else ''} {kind}"), case


def test_the_values_of_good_rows_are_kept(tmp_path: Path) -> None:
    project = declare(tmp_path, f"id long, v {DEEP}", on_bad="drop")
    deep: dict[str, Any] = {"at": {"x": 1}, "tags": [{"k": "a"}, {"k": None}, None], "by": {"b": {"n": 2}, "c": None}}
    lines(project, "a", {"id": 1, "v": deep}, {"id": 2, "v": {"at": "here"}}, {"id": 3, "v": {}})
    kept, empty = ran(project)
    assert kept[1] == {**deep, "by": list(deep["by"].items())}
    assert empty == (3, {"at": None, "tags": None, "by": None})


@pytest.mark.parametrize(
    ("kind", "value"),
    [(MAP, []), (STRUCT, {"kmh": None, "gust": None}), (f"array<{STRUCT}>", [{"kmh": None, "gust": None}])],
)
def test_an_empty_object_is_a_value(tmp_path: Path, kind: str, value: object) -> None:
    project = declare(tmp_path, f"id long, v {kind}")
    lines(project, "a", {"id": 1, "v": [{}] if kind.startswith("array") else {}}, {"id": 2, "v": None})
    assert ran(project) == [(1, value), (2, None)]


NESTED = {
    "a struct": (STRUCT, {"kmh": 1, "gust": 2}, {"kmh": 3, "dir": "n"}, {"kmh": 1, "gust": 2, "dir": None},
                 {"kmh": 3, "gust": None, "dir": "n"}),
    "a struct in a struct": ("struct<at: struct<x: int>>", {"at": {"x": 1}}, {"at": {"x": 2, "y": 3}},
                             {"at": {"x": 1, "y": None}}, {"at": {"x": 2, "y": 3}}),
    "an array of structs": ("array<struct<k: int>>", [{"k": 1}], [{"k": 2, "w": [1]}, {"k": 3}],
                            [{"k": 1, "w": None}], [{"k": 2, "w": [1]}, {"k": 3, "w": None}]),
    "a map of structs": ("map<string, struct<n: int>>", {"a": {"n": 1}}, {"b": {"n": 2, "m": "x"}},
                         [("a", {"n": 1, "m": None})], [("b", {"n": 2, "m": "x"})]),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "first", "second", "added_first", "added_second"), NESTED.values(), ids=NESTED)
def test_new_fields_inside(
    tmp_path: Path, kind: str, first: object, second: object, added_first: object, added_second: object
) -> None:
    """`add` gives the table the field, in a batch of its own or with a bad row; `ignore` leaves it out."""
    for policy, later in (("add", [added_first, added_second]), ("ignore", None)):
        root = tmp_path / policy
        root.mkdir()
        project = declare(root, f"id long, v {kind}", on_new_column=policy, on_bad="drop")
        lines(project, "a", {"id": 1, "v": first}, {"id": 4, "v": None})
        ran(project)
        lines(project, "b", {"id": 2, "v": second}, {"id": 3, "v": "bad"})
        rows = ran(project)
        assert [row[0] for row in rows] == [1, 2, 4]
        if later is not None:
            assert [row[1] for row in rows] == [*later, None]
        else:
            assert set(re.findall(r"'(\w)':", str(rows))) <= set(re.findall(r"(\w+):", kind))


def test_a_new_field_inside_may_stop(tmp_path: Path) -> None:
    project = declare(tmp_path, on_new_column="stop")
    lines(project, "a", *GOOD)
    ran(project)
    lines(project, "b", {"id": 50, "wind": {"kmh": 3, "dir": "n"}})
    (error,) = project.run().errors
    assert "has columns that the table does not have: `wind.dir`" in error.what
    assert len(project.rows("ods.t")) == len(GOOD)


def test_a_new_field_without_a_bad_row_and_first_of_all(tmp_path: Path) -> None:
    project = declare(tmp_path)
    lines(project, "a", {"id": 1, "wind": {"kmh": 3, "dir": "n"}})
    assert ran(project) == [(1, {"kmh": 3, "gust": None, "dir": "n"})]
    lines(project, "a", {"id": 1, "wind": {"kmh": 4}})
    assert ran(project) == [(1, {"kmh": 4, "gust": None, "dir": None})]


def test_parquet_follows_the_same_rule(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with Project(tmp_path).open() as lake:
        for at, wind in enumerate(({"kmh": 1}, {"kmh": 2, "dir": "n"}, {"dir": "s"})):
            pq.write_table(pa.Table.from_pylist([{"id": at, "wind": wind}]), tmp_path / f"{at}.parquet")
            if at == 1:
                with pytest.raises(Mistake) as raised:
                    lake.load("ods.t", tmp_path / "1.parquet", on_new_column="stop")
                assert raised.value.code == "LOAD_NEW_COLUMN"
            lake.load("ods.t", tmp_path / f"{at}.parquet")
        rows = lake.query("select wind from ods.t order by id").rows()
    assert [row[0] for row in rows] == [{"kmh": 1, "dir": None}, {"kmh": 2, "dir": "n"}, {"kmh": None, "dir": "s"}]
