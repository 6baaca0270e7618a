"""Sources that apply a log of changes: the log and what follows from it are published together, and agree always."""

import json
from pathlib import Path
from typing import Any

import pytest

from runnel.errors import RunnelError
from runnel.lake.upkeep.erase.erase import erase
from runnel.names import TableName
from tests.run.project import Project, did, reasons

SCHEMA = "id long, ts long, op string, name string"
FLOW = """
rn.source("ods.customers", rn.changes(rn.files("cdc/*.jsonl", schema="{schema}"{files}), {how}){options})
"""
HOW = 'key="id", sequence_by="ts", delete_when="op = \'D\'", scd={scd}'
BOTH = {"ods.customers": "ingest", "ods.customers__changes": "ingest"}
A, B = (1, 1, "I", "a"), (1, 2, "U", "b")
GONE, TWO = (1, 3, "D", None), (2, 1, "I", "x")


def declare(project: Project, *, scd: int = 1, how: str | None = None, files: str = "", options: str = "") -> None:
    told = how or HOW.format(scd=scd)
    project.flow(FLOW.format(schema=SCHEMA, files=files, how=told, options=options), orders=None)


def put(project: Project, name: str, *rows: tuple[Any, ...]) -> None:
    lines = [json.dumps(dict(zip(("id", "ts", "op", "name", "more"), row, strict=False))) for row in rows]
    project.write(f"cdc/{name}.jsonl", "\n".join(lines) + "\n")


def customers(project: Project, at: str = "main") -> list[tuple[Any, ...]]:
    return project.rows("ods.customers", at)


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    declare(project)
    return project


def test_the_log_and_what_follows_from_it_are_one_commit(shop: Project) -> None:
    put(shop, "a", A, TWO)
    assert did(shop.run()) == BOTH
    assert customers(shop) == [A, TWO]
    put(shop, "b", GONE, B, A)
    assert reasons(shop.plan()) == {
        "ods.customers__changes": "ingest: 1 new file",
        "ods.customers": "ingest: ods.customers__changes gets 1 new file",
    }
    ran = shop.run()
    assert did(ran) == BOTH
    assert customers(shop) == [TWO]
    assert len(shop.rows("ods.customers__changes")) == 5
    assert did(shop.run()) == {}
    assert shop.commits() == 3  # the lake's own, and two
    plan = shop.plan()
    assert not plan.work and not plan.jvm


@pytest.mark.parametrize("select", ["ods.customers", "ods.customers__changes", "+ods.customers"])
def test_either_is_selected_with_the_other(shop: Project, select: str) -> None:
    put(shop, "a", A)
    assert did(shop.run(select)) == BOTH


def test_a_changed_file_takes_its_rows_back(shop: Project) -> None:
    declare(shop, scd=2)
    put(shop, "a", A)
    put(shop, "b", GONE)
    shop.run()
    assert customers(shop) == [(*A, 1, 3)]
    put(shop, "b", B)
    shop.run()
    assert customers(shop) == [(*A, 1, 2), (*B, 2, None)]
    (shop.root / "cdc/b.jsonl").rename(shop.root / "cdc/c.jsonl")
    assert did(shop.run()) == {"ods.customers__changes": "ingest"}  # only its position
    assert customers(shop) == [(*A, 1, 2), (*B, 2, None)]


def test_rows_of_a_file_that_vanished(shop: Project) -> None:
    declare(shop, files=', removed="delete"')
    put(shop, "a", A)
    put(shop, "b", B)
    shop.run()
    (shop.root / "cdc/b.jsonl").unlink()
    assert did(shop.run()) == BOTH
    assert customers(shop) == [A]


def test_another_declaration_reads_no_file_again(shop: Project) -> None:
    put(shop, "a", A, B, TWO)
    shop.run()
    (shop.root / "cdc/a.jsonl").unlink()
    declare(shop, scd=2)
    assert reasons(shop.plan())["ods.customers"] == "ingest: its log, or how it is applied, changed"
    assert did(shop.run()) == {"ods.customers": "ingest"}
    assert customers(shop) == [(*A, 1, 2), (*B, 2, None), (*TWO, 1, None)]
    declare(shop, how='key="name", sequence_by=["ts", "id"]')
    assert did(shop.run()) == {"ods.customers": "ingest"}
    assert customers(shop) == [A, B, TWO]
    declare(shop)
    assert did(shop.run()) == {"ods.customers": "reuse"}
    assert customers(shop) == [B, TWO]
    put(shop, "b", GONE)
    shop.run()
    assert customers(shop) == [TWO]


def test_a_revert_takes_both_back(shop: Project) -> None:
    put(shop, "a", A)
    shop.run()
    put(shop, "b", GONE)
    ran = shop.run()
    with shop.open() as lake:
        lake.revert(ran.commit)
    assert did(shop.run()) == {}
    assert customers(shop) == [A]
    put(shop, "c", B)
    assert did(shop.run()) == BOTH
    assert customers(shop) == [B]
    assert len(shop.rows("ods.customers__changes")) == 2


def test_an_earlier_commit_is_reverted(shop: Project) -> None:
    """What is left of the log is applied, whatever a revert makes of the table itself."""
    put(shop, "a", A)
    shop.run()
    put(shop, "b", GONE)
    ran = shop.run()
    put(shop, "c", TWO)
    shop.run()
    with shop.open() as lake:
        lake.revert(ran.commit)
    assert did(shop.run()) == {"ods.customers": "ingest"}
    assert customers(shop) == [A, TWO]
    put(shop, "d", B)
    assert did(shop.run()) == BOTH
    assert customers(shop) == [B, TWO]


def test_equal_logs_of_two_branches_are_equal_tables(shop: Project) -> None:
    put(shop, "a", A)
    shop.run()
    with shop.open() as lake:
        lake.branch("dev")
    put(shop, "b", B)
    assert did(shop.run()) == BOTH
    assert did(shop.run(branch="dev")) == {"ods.customers": "reuse", "ods.customers__changes": "reuse"}
    with shop.open() as lake:
        assert not lake.diff("main", "dev").tables


def test_branches_that_read_different_files_merge(shop: Project) -> None:
    put(shop, "a", A)
    shop.run()
    with shop.open() as lake:
        lake.branch("dev")
    put(shop, "b", GONE)
    shop.run(branch="dev")
    assert customers(shop, "dev") == []
    (shop.root / "cdc/b.jsonl").unlink()
    put(shop, "c", B, TWO)
    shop.run()
    assert customers(shop) == [B, TWO]
    put(shop, "d", (3, 1, "I", "unread"))
    with shop.open() as lake:
        lake.merge("dev", run=True)
    assert customers(shop) == [TWO]
    assert len(shop.rows("ods.customers__changes")) == 4
    (shop.root / "cdc/d.jsonl").unlink()
    assert did(shop.run()) == {}


def test_new_columns_come_through(shop: Project) -> None:
    declare(shop, scd=2)
    put(shop, "a", A, TWO)
    shop.run()
    put(shop, "b", (*B, "new"))
    ran = shop.run()
    assert did(ran) == BOTH
    with shop.open() as lake:
        found = lake.query("select id, name, more, valid_from, valid_to from ods.customers", engine="duckdb").rows()
    assert sorted(found) == [(1, "a", None, 1, 2), (1, "b", "new", 2, None), (2, "x", None, 1, None)]


KINDS = "Id decimal(10,2), `the ts` timestamp, Op string, day date, tags array<string>, at struct<x: double>, f double"


def test_every_kind_of_column_and_partitions(shop: Project) -> None:
    """Rows that share their place and differ in the least are told apart in the same way in any order."""
    origin = f'rn.files("cdc/*.jsonl", schema="{KINDS}")'
    how = 'key="id", sequence_by="the ts", delete_when="lower(op) = \'d\'", scd=2'
    base = {"Id": "1.50", "the ts": "2026-01-01T00:00:00Z", "Op": "i", "day": "2026-01-01"}
    rows = [
        base | {"tags": ["a", None], "f": -0.0, "at": {"x": 1.5}},
        base | {"tags": ["a", None], "f": 0.0, "at": {"x": 1.5}},
        base | {"tags": None, "f": 0.0, "at": {"x": 1.5}, "day": "2026-01-03"},
        base | {"the ts": "2026-01-02T00:00:00Z", "Op": "D"},
    ]
    flows = [(table, f"{table}/*.jsonl") for table in ("one", "two")]
    text = [
        f'rn.source("ods.{table}", rn.changes({origin.replace("cdc/*.jsonl", glob)}, {how}), partition="day")\n'
        for table, glob in flows
    ]
    shop.flow("".join(text), orders=None)
    for number, (one, two) in enumerate(zip(rows, reversed(rows), strict=True)):
        shop.write(f"one/{number}.jsonl", json.dumps(one) + "\n")
        shop.write(f"two/{number}.jsonl", json.dumps(two) + "\n")
        assert not shop.run().errors
    (row,) = shop.rows("ods.one")
    assert str(row[-1])[:10] == "2026-01-02"
    assert [repr(one) for one in shop.rows("ods.two")] == [repr(row)]


def test_rows_without_a_key_or_a_place(shop: Project) -> None:
    put(shop, "a", A, (None, 1, "I", "b"), (3, None, "I", "c"))
    ran = shop.run()
    error = ran.errors[0]
    assert error.code == "SOURCE_BAD_ROWS" and error.at == "cdc/a.jsonl:2"
    assert "null, but the column is required" in str(error) and ran.commit is None
    declare(shop, options=', on_bad="quarantine"')
    assert did(shop.run()) == BOTH
    assert customers(shop) == [A]
    assert len(shop.rows("quarantine.ods_customers__changes")) == 2


def test_a_function_gives_the_log(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.flow(
        """
        def fetch(state):
            at = (state or {"at": 0})["at"]
            rows = [{"id": 1, "ts": 9 - at, "op": "I", "name": str(at)}]
            return (rows, {"at": at + 1}) if at < 3 else ([], {"at": at})

        rn.source("ods.customers", rn.changes(fetch, schema="id long, ts long, op string, name string",
                  key="id", sequence_by="ts", scd=2))
        """,
        orders=None,
    )
    for _ in range(4):
        project.run()
    assert customers(project) == [(1, 7, "I", "2", 7, 8), (1, 8, "I", "1", 8, 9), (1, 9, "I", "0", 9, None)]


POINTS = [
    "ingest.read",
    "ingest.staged",
    "changes.applied",
    "changes.staged",
    "publish.before",
    "publish.rows",
    "publish.before_commit",
    "publish.after_commit",
]


def _run(root: str) -> None:
    Project(Path(root)).run()


MISTAKES = {
    "no such key": ('key="idd", sequence_by="ts"', "`key` names 'idd', which is not in its schema; close: `id`"),
    "no such sequence": ('key="id", sequence_by="tss"', "`sequence_by` names 'tss', which is not in its schema"),
    "no key": ('sequence_by="ts"', "`key` is missing"),
    "no sequence": ('key="id"', "`sequence_by` is missing"),
    "scd": ('key="id", sequence_by="ts", scd=3', "`scd` can't be '3'"),
    "key is the sequence": ('key="id", sequence_by="id"', "every row would be a key of its own"),
    "no SQL": ('key="id", sequence_by="ts", delete_when="op = = 1"', "can't be read as SQL"),
    "a subquery": ('key="id", sequence_by="ts", delete_when="exists (select 1)"', "more than a condition over one row"),
    "strange column": ('key="id", sequence_by="ts", delete_when="opp = 1"', "'opp', which is not in its schema; close"),
    "unknown option": ('key="id", sequence="ts", sequence_by="ts"', "there is no option `sequence`"),
}


@pytest.mark.parametrize(("how", "told"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_declared_wrongly_is_told(shop: Project, how: str, told: str) -> None:
    declare(shop, how=how)
    with pytest.raises(RunnelError) as caught:
        shop.plan()
    assert told in str(caught.value) and "flows/flow.py:" in str(caught.value)


LATER = {
    "not boolean": ('delete_when="length(op)"', "not true or false"),
    "another at each run": ("delete_when=\"current_date() > date '2020-01-01'\"", "returns another value in each run"),
    "only Spark": ("delete_when=\"soundex(op) = 'D'\"", "can't be evaluated without Spark"),
}


@pytest.mark.parametrize(("how", "told"), LATER.values(), ids=LATER)
def test_a_condition_that_can_not_be_used_publishes_nothing(shop: Project, how: str, told: str) -> None:
    declare(shop, how=f'key="id", sequence_by="ts", {how}')
    put(shop, "a", A)
    ran = shop.run()
    assert ran.commit is None
    assert told in str(ran.errors[0]) and "flows/flow.py:" in str(ran.errors[0])


ORIGINS = {
    "by hand": ("rn.manual()", "changes can't come from rn.manual()"),
    "changes of changes": (
        'rn.changes(rn.files("a.jsonl", schema="id long"), key="id", sequence_by="x")',
        "`sequence_by` names 'x'",
    ),
    "a number": ("5", "changes can't come from '5'"),
    "no order": (
        'rn.files("a.jsonl", schema="id long, ts array<int>")',
        "names `ts`, which is array<int>: that has no order",
    ),
    "not exact": ('rn.files("a.jsonl", schema="id double, ts long")', "names `id`, which is double: that is not exact"),
}


@pytest.mark.parametrize(("origin", "told"), ORIGINS.values(), ids=ORIGINS)
def test_an_origin_that_can_not_be_is_told(shop: Project, origin: str, told: str) -> None:
    shop.flow(f'rn.source("ods.c", rn.changes({origin}, key="id", sequence_by="ts"))\n', orders=None)
    with pytest.raises(RunnelError) as caught:
        shop.plan()
    assert told in str(caught.value)


def test_a_table_of_the_name_of_the_log(shop: Project) -> None:
    text = FLOW.format(schema=SCHEMA, files="", how=HOW.format(scd=1), options="")
    shop.flow(text + 'rn.source("ods.customers__changes", rn.manual())\n', orders=None)
    with pytest.raises(RunnelError, match=r"`ods\.customers__changes` is made twice"):
        shop.plan()


def test_rows_are_erased_from_the_log_first(shop: Project) -> None:
    put(shop, "a", A, TWO)
    shop.run()
    with shop.open() as lake:
        with pytest.raises(RunnelError) as refused:
            erase(lake.store, TableName.parse("ods.customers"), "name = 'a'")
        assert str(refused.value) == (
            "ERASE_LOG: `ods.customers` is built from its log `ods.customers__changes`, which has such rows: the next "
            "run would restore them; nothing was erased\n"
            "  fix: runnel erase ods.customers__changes --where ... first, then erase from `ods.customers`"
        )
        assert customers(shop) == [A, TWO]
        for table in ("ods.customers__changes", "ods.customers"):
            erase(lake.store, TableName.parse(table), "name = 'a'")
    assert customers(shop) == [TWO]
    shop.run()
    assert customers(shop) == [TWO]


def test_a_column_that_only_versions_have_is_not_erased_by(shop: Project) -> None:
    declare(shop, scd=2)
    put(shop, "a", A, B)
    shop.run()
    with shop.open() as lake, pytest.raises(RunnelError, match=r"ERASE_LOG.*may have such rows"):
        erase(lake.store, TableName.parse("ods.customers"), "valid_to is null")


def test_nobody_loads_into_what_follows_from_a_log(shop: Project) -> None:
    put(shop, "a", A)
    shop.run()
    with shop.open() as lake, pytest.raises(RunnelError, match="made by a task"):
        lake.load("ods.customers", str(shop.root / "cdc/a.jsonl"))
