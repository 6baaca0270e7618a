"""The ingest position is the newest of each path, and looking it up costs by what it holds, not by its history."""

import random
from collections.abc import Callable
from functools import partial

import pytest
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.diff.compaction_delta import _parse_replacements, _read_compactions
from runnel.lake.flow_state import ingest_positions
from runnel.lake.flow_state.ingest_position import STATE_PATH, ProcessedFile
from runnel.lake.history.branches import fork_branch
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.sqlite_fast_path import SqliteBranchReader
from runnel.lake.store import Store
from runnel.names import TableName
from tests.lake.factories import create, rows

ORDERS = TableName("ods", "orders")
PATHS = ["a.csv", STATE_PATH, "states.csv", "z.csv"]  # before the state in the order of paths, and behind it


def one(path: str, number: int, *, gone: bool = False) -> ProcessedFile:
    state = f'{{"n": {number}}}' if path == STATE_PATH else None
    return ProcessedFile(path, number, 0, "aa", f"i{number}", (f"f{number}",), gone, state)


@pytest.mark.parametrize("seed", range(2))
def test_the_newest_of_each_path_counts_on_the_way_to_a_commit(both: Store, seed: int) -> None:
    chance, model = random.Random(seed), {"main": {}, "dev": {}}
    create(both, "ods.orders", rows((1, "d1", 5)))
    found: list[tuple[Commit, dict[str, ProcessedFile]]] = []
    for step in range(24):
        branch = "main" if step < 8 else chance.choice(["main", "dev"])
        given = [one(path, step, gone=chance.random() < 0.2) for path in chance.sample(PATHS, chance.randint(0, 2))]
        commit = publish(
            both.db, CommitDraft(branch, "x", "ada", (), processed_files=tuple((ORDERS, seen) for seen in given))
        )
        model[branch] |= {seen.path: seen for seen in given}
        found.append((commit, dict(model[branch])))
        if step == 7:
            fork_branch(both.db, "dev", commit, "ada")
            model["dev"] = dict(model["main"])
    with both.db.read_transaction() as connection:
        for commit, expected in found:
            assert ingest_positions.read_position(connection, commit, ORDERS) == expected
            assert ingest_positions.has_ingested(connection, commit, ORDERS) == bool(expected)
            files = any(path != STATE_PATH for path in expected)
            assert ingest_positions.has_ingested(connection, commit, ORDERS, files=True) == files
            there = {path: seen for path, seen in expected.items() if not seen.is_removed}
            assert ingest_positions.read_processed_files(connection, commit, ORDERS) == there


def stream(store: Store, count: int) -> None:
    """Write the history of a stream that published `count` times."""
    last = store.commit()
    seqs = range(last.seq + 1, last.seq + 1 + count)
    commits = [vars(last) | {"id": f"{seq:020d}", "seq": seq, "kind": "stream"} for seq in seqs]
    given = {"line": last.line, "table_name": str(ORDERS)}
    version = {"before": "/x", "after": "/x", "content": "/x", "detail": '{"run": "r"}'}
    changes = [{**given, **version, "seq": seq, "commit_id": f"{seq:020d}"} for seq in seqs]
    states = [{**given, **_row(one(STATE_PATH, seq)), "seq": seq} for seq in seqs]

    def work(connection: Connection) -> None:
        for table, made in ((schema.commits, commits), (schema.changes, changes), (schema.ingested, states)):
            connection.execute(table.insert(), made)
        connection.execute(schema.lake.update().values(seq=seqs[-1]))

    store.db.write(work)


def _row(seen: ProcessedFile) -> dict[str, object]:
    return {**{name: value for name, value in vars(seen).items() if name != "is_gone"}, "files": "[]", "gone": False}


LOOKS: dict[str, Callable[[Connection, Commit], object]] = {
    "seen": lambda connection, commit: ingest_positions.read_processed_files(connection, commit, ORDERS),
    "has files": lambda connection, commit: ingest_positions.has_ingested(connection, commit, ORDERS, files=True),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_the_length_of_the_history_costs_nothing(store: Store, look: Callable[[Connection, Commit], object]) -> None:
    create(store, "ods.orders", rows((1, "d1", 5)))
    work = []
    for count in (50, 2000):
        stream(store, count)
        commit = publish(store.db, CommitDraft("main", "x", "ada", ()))
        work.append(store.db.read(partial(_work, look=lambda connection, commit=commit: look(connection, commit))))
    assert work[1] < work[0] + 50  # a look at each row would be thousands


def test_a_glance_tells_the_newest_state(store: Store) -> None:
    create(store, "ods.orders", rows((1, "d1", 5)))
    stream(store, 20)
    publish(
        store.db,
        CommitDraft("main", "x", "ada", (), processed_files=((ORDERS, one("a.csv", 1)), (ORDERS, one("z.csv", 2)))),
    )
    found = SqliteBranchReader.open(store.db.url.render_as_string(hide_password=False), store.warehouse, "main")
    assert found is not None
    assert found.read_processed_files(ORDERS) == ingest_positions.read_processed_files(store.db, store.commit(), ORDERS)
    assert set(found.read_processed_files(ORDERS)) == {"a.csv", STATE_PATH, "z.csv"}
    found.close()


def test_only_compactions_say_what_they_replaced(both: Store) -> None:
    """The newest first, whichever table and kind of commit is between."""
    for number, kind in enumerate(["compact", "stream", "compact", "write"]):
        base = both.state().get(ORDERS)
        detail = {"replaces": {f"new{number}": [f"old{number}"]}} if kind == "compact" else {"run": '"replaces"'}
        change = CommitChange(ORDERS, base.location if base else None, f"/{number}", f"/{number}", detail)
        publish(both.db, CommitDraft("main", "x", "ada", (change,), kind=kind))
    rows = both.db.read(lambda connection: _read_compactions(connection, ORDERS, None, 10))
    found = [group for _, detail in rows for group in _parse_replacements(detail)]
    assert found == [(frozenset({f"new{number}"}), frozenset({f"old{number}"})) for number in (2, 0)]
    assert both.db.read(lambda connection: _read_compactions(connection, TableName("ods", "other"), None, 10)) == []
    assert both.db.read(lambda connection: _read_compactions(connection, ORDERS, rows[0][0], 10)) == rows[1:]


def _work(connection: Connection, look: Callable[[Connection], object]) -> int:
    """Return how many steps SQLite takes for a look, in tens."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    driver = connection.connection.driver_connection
    assert driver is not None
    driver.set_progress_handler(count, 10)
    try:
        look(connection)
    finally:
        driver.set_progress_handler(None, 0)
    return steps
