"""Every command says what it did, in words and in JSON, and every mistake says what to do."""

from collections.abc import Callable
from pathlib import Path

import pytest

import runnel as rn
from runnel.lake.control import run_queue
from runnel.lake.control.queue_entry import QueueRequest
from runnel.model.worker_request import QueryRequest

Run = Callable[..., "Done"]  # noqa: F821
LATE = "order_id,seller_id,day,amount\n3,10,2026-01-02,15.00\n4,11,2026-01-02,30.00\n"


def test_a_day_with_the_lake(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "late.csv").write_text("order_id,seller_id,day,amount\n4,11,2026-01-02,30.00\n")
    assert shop("branch", "fix", "--json").json["branch"] == "fix"
    loaded = shop("load", "ods.orders", "late.csv", "--branch", "fix", "--json").json
    assert (loaded["rows"], loaded["created"], loaded["branch"]) == (1, False, "fix")
    diff = shop("diff", "main", "fix", "--json").json["tables"]
    assert [(one["table"], one["change"], one["rows_added"], one["rows_removed"]) for one in diff] == [
        ("ods.orders", "changed", 1, 0)
    ]
    merged = shop("merge", "fix", "--json").json
    assert [step["action"] for step in merged["steps"]] == ["take"]
    answer = shop("query", "select count(*) as n from ods.orders", "--json").json
    assert (answer["columns"], answer["rows"], answer["engine"], answer["at"]) == (
        ["n"],
        [[4]],
        "duckdb",
        merged["commit"],
    )
    assert shop("query", "select count(*) as n from ods.orders", "--at", "main~1", "--json").json["rows"] == [[3]]
    assert shop("tag", "v1", "--json").json["commit"] == merged["commit"]
    assert shop("revert", "main", "--json").json["reverted"] == merged["commit"]
    assert shop("tables", "--json").json[0]["rows"] == 3
    history = shop("log", "--json").json
    assert [one["seq"] for one in history] == sorted((one["seq"] for one in history), reverse=True)
    assert (
        history[0]["tables"] == ["ods.orders"]
        and {"commit", "branch", "parent", "message", "author", "at"} <= history[0].keys()
    )
    assert shop("show", history[1]["commit"][:8], "--json").json["merged"]
    assert shop("fsck", "--deep", "--json").json["findings"] == []


def test_rows_that_differ_are_shown_by_key(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(LATE)
    shop("branch", "fix")
    shop("load", "ods.orders", "new.csv", "--replace", "--branch", "fix")
    rows = shop("diff", "main", "fix", "ods.orders", "--rows", "--json").json["rows"]
    assert (rows["rows_added"], rows["rows_removed"], rows["rows_changed"]) == (1, 2, 1)
    assert rows["changed"][0]["cells"] == [{"column": "amount", "before": 12.25, "after": 15.0}]
    assert "12.25" in shop("diff", "main", "fix", "ods.orders", "--rows").out


def test_texts_for_people(shop: Run) -> None:
    assert shop("log").out.splitlines()[0].split() == ["commit", "seq", "at", "(UTC)", "author", "message"]
    assert shop("branch").out.splitlines()[1].startswith("main")
    assert "no tags yet" in shop("tag").out
    assert "order_id" in shop("table", "ods.orders").out
    assert shop("diff", "main", "main").out == "no difference\n"
    with rn.open(".") as lake:
        assert shop("why", "ods.orders").out == f"{lake.why('ods.orders')}\n"
    assert shop("log", "--graph").out.startswith("* ")
    assert "nothing to compact" in shop("compact").out or "ods.orders" in shop("compact").out
    assert "needed" in shop("gc", "--dry-run").out
    assert "sound" in shop("fsck").out


@pytest.mark.parametrize("option", ["--at", "--from"])
def test_a_branch_at_an_earlier_commit(shop: Run, option: str) -> None:
    assert shop("load", "ods.orders", "data/orders.csv").code == 0
    assert shop("branch", "before", option, "main~1").code == 0
    assert shop("query", "select count(*) from ods.orders", "--at", "before", "--json").json["rows"] == [[3]]


def test_line_ends_stay_in_their_cell(shop: Run) -> None:
    done = shop("query", r"select 'a\nb\tc\rd' as t, 1 as n")
    assert done.out == "t           n\na\\nb\\tc\\rd  1\n"


def test_a_table_has_the_types_that_were_typed(cli: Run, tmp_path: Path) -> None:
    schema = (
        "id long, price decimal(12,2), at timestamp, local timestamp_ntz, tags array<string>, "
        "place struct<city: string, `zip code`: int>, counts map<string, bigint>"
    )
    cli("init", "--template", "empty")
    row = '{"id": 1, "price": 2, "at": null, "local": null, "tags": [], "place": null, "counts": {"x": 1}}'
    (tmp_path / "a.jsonl").write_text(row + "\n")
    assert cli("load", "ods.a", "a.jsonl", "--schema", schema).code == 0
    lines = cli("table", "ods.a").out.splitlines()
    start = lines.index("") + 1
    assert [line.split(maxsplit=1)[1] for line in lines[start + 1 : start + 8]] == [
        "long",
        "decimal(12,2)",
        "timestamp",
        "timestamp_ntz",
        "array<string>",
        "struct<city: string, `zip code`: int>",
        "map<string, long>",
    ]
    columns = {column["name"]: column for column in cli("table", "ods.a", "--json").json["columns"]}
    assert (columns["at"]["type"], columns["at"]["spark_type"]) == ("timestamptz", "timestamp")


@pytest.mark.parametrize("format_", ["csv", "jsonl", "parquet"])
def test_answers_in_files(shop: Run, tmp_path: Path, format_: str) -> None:
    done = shop("query", "select * from ods.orders order by order_id", "--format", format_, "-o", "out")
    assert done.code == 0 and "wrote 3 rows" in done.err
    assert (tmp_path / "out").stat().st_size > 0


MISTAKES = {
    "unknown command": (("lgo",), 2, "close: `log`"),
    "unknown option": (("log", "--grahp"), 2, "--grahp"),
    "missing word": (("show",), 2, "Missing argument"),
    "unknown table": (("table", "ods.order"), 2, "close: `ods.orders`"),
    "unknown branch": (("merge", "fxi"), 2, "there is no branch"),
    "unknown ref": (("show", "mian"), 2, "close: `main`"),
    "bad table name": (("load", "Orders", "data/orders.csv"), 2, "layer.name"),
    "no such file": (("load", "ods.x", "data/order.csv"), 2, "orders.csv"),
    "no match": (("load", "ods.x", "data/*.parquet"), 2, "data/*.parquet"),
    "not read-only": (("query", "delete from ods.orders"), 2, "SQL_NOT_READ_ONLY"),
    "syntax": (("query", "selec 1"), 2, "SQL_"),
    "a misspelled query": (("query", "selct order_id from ods.orders"), 2, "not with 'SELCT'; close: `SELECT`"),
    "unknown function": (
        ("query", "select to_dat(day) from ods.orders"),
        2,
        "SQL_FUNCTION: the function 'to_dat' is not supported; close: `to_date`",
    ),
    "a branch of main's name": (
        ("branch", "main"),
        2,
        "BRANCH_EXISTS: branch `main` already exists\n  fix: choose another name\n",
    ),
    "unknown column": (("query", "select amuont from ods.orders"), 2, "amount"),
    "file function": (("query", "select * from read_csv('/etc/passwd')"), 2, "SQL_"),
    "rows without a table": (("diff", "main", "main", "--rows"), 2, "needs a table"),
    "parquet without a file": (("query", "select 1", "--format", "parquet"), 2, "-o FILE"),
    "erase unasked": (("erase", "ods.orders", "--where", "order_id = 1"), 2, "--yes"),
    "not a file table": (("ls", "ods.orders"), 2, "holds rows, not files"),
    "init twice": (("init",), 2, "is a project already"),
    "bad env": (("--env", "prod", "log"), 2, "runnel.prod.toml"),
    "bad duration": (("gc", "--grace", "soon"), 2, "not a duration"),
}


@pytest.mark.parametrize(("words", "code", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_say_what_to_do(shop: Run, words: tuple[str, ...], code: int, said: str) -> None:
    done = shop(*words)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    as_json = shop(*words, "--json")
    assert as_json.code == code and {"code", "what", "at", "fix"} == as_json.json["error"].keys()


def test_only_runs_are_retried(shop: Run, tmp_path: Path) -> None:
    with rn.open(tmp_path) as lake:
        entry = run_queue.submit(lake.store.db, QueueRequest(QueryRequest("select 1"), "ada"))
    assert entry is not None and shop("cancel", entry).code == 0
    refused = shop("retry", entry)
    assert (refused.code, refused.out) == (2, "")
    assert f"NOT_A_RUN: {entry} is a query, not a run" in refused.err and "`runnel query`" in refused.err


def test_outside_a_project(cli: Run) -> None:
    done = cli("log")
    assert done.code == 2 and "runnel init" in done.err


def test_a_full_disk_is_told(shop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_FAIL", "write.bytes:enospc")
    done = shop("load", "ods.orders", "data/orders.csv")
    assert (done.code, done.err.splitlines()[0].split(":")[0]) == (1, "DISK_FULL")
    monkeypatch.delenv("RUNNEL_FAIL")
    assert shop("query", "select count(*) from ods.orders", "--json").json["rows"] == [[3]]
    assert "sound" in shop("fsck").out


def test_an_error_that_nobody_foresaw_shows_no_trace(
    shop: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RUNNEL_FAIL", "publish.before:error")
    done = shop("load", "ods.orders", "data/orders.csv")
    assert done.code == 1 and done.err.startswith("INTERNAL")
    assert "Traceback" in (tmp_path / ".runnel/logs/runnel-error.log").read_text()


def test_the_ending_of_the_file_gives_the_format(shop: Run, tmp_path: Path) -> None:
    shop("query", "select order_id from ods.orders where order_id = 1", "-o", "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text() == '{"order_id": 1}\n'


NEWCOMERS = {
    "a folder that is no project": (("-C", "typo", "log"), "is not a project"),
    "JSON to a file": (("query", "select 1", "--json", "-o", "x.csv"), "leave out --json"),
    "a file without a format": (("query", "select 1", "-o", "x.xyz"), "--format"),
    "a folder that is not there": (("query", "select 1", "-o", "no/x.csv"), "there is no folder"),
    "a project where none can be": (("init", "/proc/x"), "choose another folder"),
}


@pytest.mark.parametrize(("words", "said"), NEWCOMERS.values(), ids=NEWCOMERS)
def test_what_newcomers_get_wrong(shop: Run, words: tuple[str, ...], said: str) -> None:
    done = shop(*words)
    assert done.code == 2 and said in done.err + done.out


def test_a_dry_run_of_a_merge_ends_as_the_merge_would(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(LATE)
    shop("branch", "fix")
    for branch in ("fix", "main"):
        assert shop("load", "ods.orders", "new.csv", "--replace", "--branch", branch).code == 0
    assert shop("merge", "fix", "--dry-run").code == shop("merge", "fix").code == 1


def test_settings_can_be_given_on_the_command_line(shop: Run, tmp_path: Path) -> None:
    other = ("--set", f"lake.catalog=sqlite:///{tmp_path}/other.db", "--set", f"lake.warehouse={tmp_path}/other")
    assert shop(*other, "tables").out.startswith("no tables yet")


def test_another_catalog_over_the_same_warehouse_is_refused_until_it_is_adopted(shop: Run, tmp_path: Path) -> None:
    typo = ("--set", f"lake.catalog=sqlite:///{tmp_path}/typo.db")
    for words in (["tables"], ["gc", "--grace", "0s"], ["fsck"]):
        done = shop(*typo, *words)
        assert (done.code, done.err.split(":")[0]) == (2, "LAKE_FOREIGN")
        assert "catalog.db" in done.err and "typo.db" in done.err and "runnel fsck --adopt" in done.err
    assert "sound" in shop("fsck").out
    assert shop(*typo, "fsck", "--adopt").code == 0
    assert shop(*typo, "tables").out.startswith("no tables yet") and shop("tables").code == 2


def test_erase_says_what_it_removes_and_what_it_leaves(shop: Run) -> None:
    words = ("erase", "ods.orders", "--where", "order_id = 1")
    assert shop(*words, "--dry-run").out == "1 row of ods.orders would be erased, 1 copy in 1 version\n"
    found = shop(*words, "--dry-run", "--json").json
    assert (found["rows"], found["copies"], found["downstream"], found["sinks"]) == (1, 1, [], [])
    assert shop(*words, "--yes").out == "1 row of ods.orders erased, 1 copy in 1 version\n"
