"""A tape follows its table: what came is on it once, whatever became of the files meanwhile."""

from collections.abc import Callable

import pytest

from runnel.lake.flow_state import append_log
from runnel.lake.flow_state.append_log import AppendLog, NotAppendOnly
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import RETAINED_SNAPSHOTS, load_metadata
from runnel.lake.merge.revert import revert_commit
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows

ORDERS = TableName.parse("ods.orders")


class Winding:
    """A table of orders, and a tape of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.numbers = 0
        create(store, "ods.orders", rows())
        self.tape = append_log.create(store, ORDERS, *self._now())
        self.add()
        self.wind()

    def add(self) -> str:
        self.numbers += 1
        return add(self.store, "ods.orders", rows((self.numbers, "d", 1))).id

    def compact(self) -> None:
        assert compact(self.store, ORDERS, force=True)[0].commit

    def revert(self, commit: str) -> None:
        revert_commit(self.store, commit, "main")

    def wind(self, read: dict[int, int] | None = None) -> None:
        self.tape = append_log.extend(
            self.store, ORDERS, append_log.trim(self.store, self.tape, read or {}), *self._now()
        )

    def on_tape(self) -> list[tuple[object, ...]]:
        """Return the rows of a table that has the files of the tape."""
        name = TableName.parse("tmp.tape")
        before = self.store.state("main").get(name)
        change = CommitChange(name, before.location if before else None, self.tape.location)
        publish(self.store.db, CommitDraft("main", "look", "ada", (change,)))
        return read(self.store, "tmp.tape")

    def _now(self) -> tuple[str, str]:
        found = self.store.state("main")[ORDERS]
        return found.location, found.content


def nothing(winding: Winding) -> None:
    pass


def grown(winding: Winding) -> None:
    for _ in range(3):
        winding.add()


def compacted(winding: Winding) -> None:
    winding.add()
    winding.wind()
    winding.compact()


def compacted_with_more(winding: Winding) -> None:
    for _ in range(2):
        winding.add()
        winding.compact()
    winding.add()


def reverted_before_it_was_read(winding: Winding) -> None:
    winding.revert(winding.add())


def reverted_and_back(winding: Winding) -> None:
    commit = winding.add()
    winding.wind()
    winding.revert(commit)
    winding.revert(winding.store.commit("main").id)


GOES_ON = [nothing, grown, compacted, compacted_with_more, reverted_before_it_was_read, reverted_and_back]


@pytest.mark.parametrize("change", GOES_ON, ids=lambda change: change.__name__)
def test_it_has_each_row_once(store: Store, change: Callable[[Winding], None]) -> None:
    winding = Winding(store)
    change(winding)
    winding.wind()
    assert winding.on_tape() == read(store, "ods.orders")
    winding.add()
    winding.wind()
    assert winding.on_tape() == read(store, "ods.orders")


def test_rows_that_it_has_went(store: Store) -> None:
    winding = Winding(store)
    commit = winding.add()
    winding.wind()
    winding.revert(commit)
    with pytest.raises(NotAppendOnly, match=r"rows were removed or changed in files of `ods\.orders`"):
        winding.wind()


def test_what_is_unread(store: Store) -> None:
    winding = Winding(store)
    assert append_log.count_unread_snapshots(store, winding.tape, {}) == 1
    (first,) = [one.snapshot_id for one in _snapshots(store, winding.tape)[1:]]
    assert append_log.count_unread_snapshots(store, winding.tape, {first: 0}) == 1  # not all of its files
    assert append_log.count_unread_snapshots(store, winding.tape, {first: 1}) == 0
    for _ in range(3):
        winding.add()
        winding.wind()
    assert append_log.count_unread_snapshots(store, winding.tape, {first: 1}) == 3
    assert append_log.MAX_UNREAD_SNAPSHOTS < RETAINED_SNAPSHOTS


def test_what_was_read_is_taken_off(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_log, "MAX_READ_FILES", 2)
    winding = Winding(store)
    for _ in range(4):
        winding.add()
        winding.wind({_snapshots(store, winding.tape)[-1].snapshot_id: 1})
    assert len(list(read_entries(store, load_metadata(store, winding.tape.location)))) < 5
    assert (
        append_log.count_unread_snapshots(store, winding.tape, {_snapshots(store, winding.tape)[-2].snapshot_id: 1})
        == 1
    )


def _snapshots(store: Store, found: AppendLog):  # type: ignore[no-untyped-def]
    return load_metadata(store, found.location).snapshots
