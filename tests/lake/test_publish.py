"""One transaction makes all changes of a write visible, or none."""

import pytest

from runnel.errors import VersionConflict
from runnel.lake.history.commits import CommitChange
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows


def test_a_published_table_is_read_at_every_commit(both: Store) -> None:
    first = create(both, "ods.orders", rows((1, "d1", 5)))
    second = add(both, "ods.orders", rows((2, "d2", 7)))
    assert read(both, "ods.orders") == [(1, "d1", 5), (2, "d2", 7)]
    assert read(both, "ods.orders", first.id) == [(1, "d1", 5)]
    assert read(both, "ods.orders", "main~1") == [(1, "d1", 5)]
    assert read(both, "ods.orders", f"main@{first.at}") == [(1, "d1", 5)]
    assert second.parent == first.id and second.seq == first.seq + 1


def test_a_table_that_moved_is_not_overwritten(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    table = TableName.parse("ods.orders")
    stale = both.state()[table].location
    add(both, "ods.orders", rows((2, "d2", 7)))
    with pytest.raises(VersionConflict, match=r"`ods\.orders`"):
        publish(both.db, CommitDraft("main", "late", "eve", (CommitChange(table, stale, stale + "x"),)))
    assert len(read(both, "ods.orders")) == 2


def test_one_moved_table_holds_back_the_whole_commit(both: Store) -> None:
    create(both, "ods.a", rows((1, "d1", 5)))
    create(both, "ods.b", rows((1, "d1", 5)))
    state = both.state()
    a, b = state[TableName.parse("ods.a")], state[TableName.parse("ods.b")]
    changes = (
        CommitChange(TableName.parse("ods.a"), a.location, b.location),
        CommitChange(TableName.parse("ods.b"), "stale", a.location),
    )
    with pytest.raises(VersionConflict, match=r"`ods\.b`"):
        publish(both.db, CommitDraft("main", "both or none", "eve", changes))
    assert both.state() == state


def test_rows_erased_meanwhile_do_not_come_back(both: Store) -> None:
    """A merge that was planned before an erasure would publish a version that still has the rows."""
    from runnel.lake.history.branches import fork_branch
    from runnel.lake.history.commits import read_sequence
    from runnel.lake.upkeep.erase.erase import erase

    create(both, "ods.orders", rows((1, "d1", 5)))
    fork_branch(both.db, "dev", both.commit("main"), "ada")
    add(both, "ods.orders", rows((2, "d2", 7)), branch="dev")
    table = TableName.parse("ods.orders")
    planned, theirs = both.db.read(read_sequence), both.state("dev")[table].location
    erase(both, table, "id = 2")
    ours = both.state("main")[table].location
    with pytest.raises(VersionConflict):
        publish(
            both.db, CommitDraft("main", "merge", "ada", (CommitChange(table, ours, theirs),), planned_sequence=planned)
        )
    assert read(both, "ods.orders") == read(both, "ods.orders", "dev") == [(1, "d1", 5)]
