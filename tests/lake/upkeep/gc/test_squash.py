"""Commits of streams leave the history, and whatever is kept says what it said before."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake
from runnel.failpoint import InjectedFault
from runnel.lake.catalog import schema
from runnel.lake.flow_state import ingest_positions, runs, sink_positions
from runnel.lake.flow_state.ingest_position import STATE_PATH, ProcessedFile
from runnel.lake.flow_state.sink_backlog import plan_delivery_steps
from runnel.lake.history import branches
from runnel.lake.history.ancestry import find_merge_bases, find_tables_changed_between
from runnel.lake.history.commits import (
    Commit,
    CommitChange,
    find_commit,
    find_version,
    read_changes,
    read_history,
    read_state,
)
from runnel.lake.history.content_origin import find_origin
from runnel.lake.history.refs import check_retained, resolve_ref
from runnel.lake.history.tags import create_tag
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.upkeep.fsck import history_check
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc import squash
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retained_commits import find_expired_commits, read_unexpired_commits
from runnel.lake.upkeep.gc.retention import Retention
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows

TABLES = [TableName("ods", name) for name in "abc"]
EXPIRED, LIMIT = "2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"
NOW = Retention(commits="0 seconds", grace="0 seconds")


def state(number: int) -> ProcessedFile:
    return ProcessedFile(STATE_PATH, 0, 0, "", f"s{number}", (), state=f'{{"n": {number}}}')


def write(store: Store, step: int, table: TableName, *, branch: str = "main", kind: str = "stream", **more: Any) -> str:
    """Publish a version that is only a name; a compaction keeps the content, a revert takes the one before back."""
    now = store.state(branch).get(table)
    content = now.content if now and kind == "compact" else None
    change = CommitChange(table, now.location if now else None, f"/{step}-{table}", content, more.pop("detail", {}))
    return publish(store.db, CommitDraft(branch, "x", "ada", (change,), kind=kind, **more)).id


def expire(store: Store, ids: list[str]) -> None:
    gone = schema.commits.update().where(schema.commits.c.id.in_(ids)).values(expired_at=EXPIRED)
    store.db.write(lambda connection: connection.execute(gone))


def squashed(store: Store) -> int:
    return squash.squash(store, LIMIT, lambda connection: None)


def assert_whole(connection: Connection) -> None:
    assert list(history_check.find_problems(connection)) == []
    parent = schema.commits.alias()
    lost = sa.select(schema.commits.c.id).outerjoin(parent, parent.c.id == schema.commits.c.parent)
    lost = lost.where(schema.commits.c.parent.is_not(None), parent.c.id.is_(None))
    assert connection.execute(lost).all() == []


# Commits of main in order: s of a stream, o of a stream to another table, w and c others; capitals have expired.
LEFT = {
    "a run between kept ones: its ends": ("wSSSSSw", "wSSw"),
    "after the beginning, before the head": ("SSSSSs", "SSs"),
    "around a kept one in the midst": ("wSSSSsSSSSw", "wSSsSSw"),
    "what has not expired": ("wssssw", "wssssw"),
    "other kinds, and what they started from": ("wSSSSWSSSSw", "wSSWSw"),
    "what a compaction passed on": ("wSSSSCOOOOo", "wSSCOo"),
    "the newest version of another table": ("wSSOSSSw", "wSOSw"),
    "another table's that was overwritten": ("wSSOSSOSSSw", "wSOSw"),
}


@pytest.mark.parametrize(("made", "left"), LEFT.values(), ids=LEFT)
def test_what_is_left(store: Store, made: str, left: str) -> None:
    kinds = {"w": "write", "c": "compact", "s": "stream", "o": "stream"}
    letters = {
        write(store, step, TABLES[letter in "oO"], kind=kinds[letter.lower()]): letter
        for step, letter in enumerate(made)
    }
    expire(store, [one for one, letter in letters.items() if letter.isupper()])
    assert squashed(store) == len(made) - len(left)
    found = store.db.read(lambda connection: read_history(connection, resolve_ref(connection, "main")))
    assert "".join(letters.get(one.id, "") for one in reversed(found)) == left
    assert squashed(store) == 0
    store.db.read(assert_whole)


def deliver(store: Store, commit: Commit, sink: str = "sink", version: TableVersion | None = None) -> None:
    with sink_positions.lease_sink(store.db, sink) as hold:
        assert hold is not None
        hold.record_delivery(commit, version, 1, 0)


def ended(store: Store, commit: Commit) -> None:
    runs.start(store.db, "r1", "main", "ada", {})
    runs.finish(store.db, "r1", "succeeded", commit.id, {})


def deleted(store: Store, commit: Commit) -> None:
    branches.fork_branch(store.db, "gone", commit, "ada")
    branches.delete_branch(store.db, "gone")


NAMES: dict[str, Callable[[Store, Commit], object]] = {
    "where a branch was forked off": deleted,
    "what was merged": lambda store, commit: write(store, 50, TABLES[1], kind="merge", merged=commit.id),
    "what was delivered": deliver,
    "what a run made": ended,
    "what was reverted": lambda store, c: write(store, 50, TABLES[1], kind="revert", detail={"reverts": c.id}),
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_what_is_named_stays(both: Store, name: Callable[[Store, Commit], object]) -> None:
    made = [write(both, step, TABLES[0]) for step in range(6)]
    named = both.commit()
    made += [write(both, step, TABLES[0]) for step in range(6, 9)]
    name(both, named)
    made += [write(both, step, TABLES[0]) for step in range(9, 12)]
    expire(both, made[:-1])
    before = both.db.read(lambda connection: read_state(connection, named))
    assert squashed(both) >= 5
    assert both.db.read(lambda connection: find_commit(connection, named.id)) is not None
    assert both.db.read(lambda connection: read_state(connection, named)) == before
    both.db.read(assert_whole)


def grow(store: Store, chance: random.Random) -> None:
    """Publish, fork, merge, revert, tag, deliver at random, then let most of it expire."""
    names = ["main"]
    for step in range(0, 350, 10):
        action, branch, table = chance.random(), chance.choice(names), chance.choice(TABLES)
        if action < 0.05:
            branches.fork_branch(store.db, f"b{step}", store.commit(chance.choice(names)), "ada")
            names.append(f"b{step}")
        elif action < 0.08 and branch != "main":
            branches.delete_branch(store.db, branch)
            names.remove(branch)
        elif action < 0.13:
            other = store.commit(chance.choice(names)).id
            write(store, step, table, branch=branch, kind="merge", merged=other, detail={"merged": other})
        elif action < 0.17:
            undone = store.commit(branch)
            write(store, step, table, branch=branch, kind="revert", detail={"reverts": undone.id})
        elif action < 0.20:
            create_tag(store, f"v{step}", branch)
        elif action < 0.23:
            deliver(store, store.commit("main"), f"sink{step}", store.state("main").get(table))
        elif action < 0.33:
            write(store, step, table, branch=branch, kind=chance.choice(["write", "compact"]))
        else:
            for batch in range(step, step + chance.randint(1, 6)):
                seen = ((table, state(batch)),) if chance.random() < 0.7 else ()
                write(store, batch, chance.choice([table, TABLES[0]]), branch=branch, processed_files=seen)
    past = store.db.read(lambda connection: find_expired_commits(connection, NOW, "2999-01-01T00:00:00.000000Z"))
    expire(store, [one for one in past if chance.random() < 0.93])


def moments(connection: Connection) -> list[str]:
    return list(connection.execute(sa.select(schema.commits.c.at)).scalars())


def told(connection: Connection, moments: list[str]) -> dict[str, Any]:
    """Return all that is said about and by the commits that have not expired, and about moments."""
    kept = {one.id: found for one in read_unexpired_commits(connection) if (found := find_commit(connection, one.id))}
    heads = [kept[branch.head] for branch in branches.list_branches(connection)]
    sinks = sink_positions.read_positions(connection).values()
    return {
        "commits": kept,
        "states": {one.id: read_state(connection, one) for one in kept.values()},
        "tables": {(one.id, table): _of(connection, one, table) for one in kept.values() for table in TABLES},
        "histories": {head.id: [one.id for one in read_history(connection, head) if one.id in kept] for head in heads},
        "changes": {one: read_changes(connection, one) for one in kept},
        "bases": {(a.id, b.id): find_merge_bases(connection, a, b) for a in heads for b in heads},
        "between": {(a.id, b.id): _differ(connection, a, b) for a in heads for b in heads},
        "moments": {(at, one.branch): _then(connection, f"{one.branch}@{at}") for at in moments for one in heads[:2]},
        "sinks": {one.sink: find_commit(connection, one.delivered or "") is not None for one in sinks},
        "steps": {(one.sink, table): _steps(connection, one, table) for one in sinks for table in TABLES},
    }


def _of(connection: Connection, commit: Commit, table: TableName) -> tuple[Any, ...]:
    made = find_origin(connection, commit, table)
    newest = read_history(connection, commit, table=table, limit=1)
    known: TableVersion | None = find_version(connection, commit, table)
    where = (
        ingest_positions.read_processed_files(connection, commit, table),
        ingest_positions.read_position(connection, commit, table),
    )
    return known, made and (made.origin_step.commit.id, made.origin_step.change.content), newest and newest[0].id, where


def _steps(connection: Connection, done: sink_positions.SinkPosition, table: TableName) -> list[tuple[Any, ...]]:
    found = plan_delivery_steps(connection, done, resolve_ref(connection, "main"), table, each_commit=True)
    return [(one.commit.id, one.before, one.after) for one in found]


def _differ(connection: Connection, a: Commit, b: Commit) -> set[str]:
    return {
        name
        for name in find_tables_changed_between(connection, a, b)
        if _at(connection, a, name) != _at(connection, b, name)
    }


def _at(connection: Connection, commit: Commit, name: str) -> TableVersion | None:
    return find_version(connection, commit, TableName.parse_unchecked(name))


def _then(connection: Connection, ref: str) -> str:
    try:
        return check_retained(resolve_ref(connection, ref)).id
    except Mistake as error:
        return error.code


@pytest.mark.parametrize("seed", range(2))
def test_what_is_kept_says_what_it_said(both: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(both, random.Random(seed))
    asked = both.db.read(moments)
    before = both.db.read(lambda connection: told(connection, asked))
    monkeypatch.setattr(squash, "AT_ONCE", 4)
    assert squashed(both) > 8
    assert both.db.read(lambda connection: told(connection, asked)) == before
    both.db.read(assert_whole)
    assert squashed(both) == 0


@pytest.mark.parametrize("point", ["squash.before_commit", "squash.batch"])
def test_a_crash_in_the_midst_is_gone_on_from(both: Store, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    made = [write(both, step, TABLES[step % 2], processed_files=((TABLES[0], state(step)),)) for step in range(12)]
    expire(both, made[:-1])
    before = both.db.read(lambda connection: told(connection, []))
    monkeypatch.setattr(squash, "AT_ONCE", 3)
    monkeypatch.setattr("runnel.failpoint._passed", {})
    monkeypatch.setenv("RUNNEL_FAIL", f"{point}:error@2")
    with pytest.raises(InjectedFault):
        squashed(both)
    monkeypatch.delenv("RUNNEL_FAIL")
    both.db.read(assert_whole)
    assert both.db.read(lambda connection: told(connection, [])) == before
    assert squashed(both) == (8 - 3 if point == "squash.before_commit" else 8 - 6)
    assert both.db.read(lambda connection: told(connection, [])) == before
    both.db.read(assert_whole)


def test_gc_squashes_a_grace_period_after_commits_have_expired(both: Store) -> None:
    """What a reader without a pin looks at stays for a while, as its files do."""
    create(both, "ods.orders", rows((1, "d1", 5)))
    for number in range(2, 8):
        add(both, "ods.orders", rows((number, "d1", 5)))
    streamed = schema.commits.update().where(schema.commits.c.message.startswith("add")).values(kind="stream")
    both.db.write(lambda connection: connection.execute(streamed))
    kept, now = Retention(stream="0 seconds", grace="1 hour"), datetime.now(UTC)
    counts = []
    for hours in (0.1, 0.2, 2, 4):
        at = now + timedelta(hours=hours)
        foretold, found = gc(both, kept, now=at, dry_run=True), gc(both, kept, now=at)
        assert foretold.squashed_commits == found.squashed_commits
        counts.append((found.expired_commits, found.squashed_commits))
    assert counts == [(5, 0), (0, 0), (0, 3), (0, 0)]
    assert len(read(both, "ods.orders")) == 7
    assert [one for one in fsck(both, deep=True).findings if one.severity == "error"] == []
    assert [one.kind for one in both.db.read(lambda c: read_history(c, resolve_ref(c, "main")))][:3] == ["stream"] * 3
