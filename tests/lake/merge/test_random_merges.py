"""The law of merge: what was merged has, day by day, the rows of whoever changed them, or both appends; never else."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runnel.lake.merge.merge import MergeConflict, merge_branch
from runnel.lake.merge.revert import RevertConflict, revert_commit
from runnel.lake.store import Store
from tests.lake.factories import add, create, read, rows
from tests.lake.table_changes import branch, compact, delete_rows, files, overwrite

T = "ods.orders"
DAYS = ("d1", "d2")
Rows = Counter[tuple[Any, ...]]
ACTS = st.tuples(
    st.sampled_from(["main", "main", "dev", "dev", "dev"]),
    st.sampled_from(["append", "append", "append", "replace", "remove", "compact", "compact"]),
    st.sampled_from(DAYS),
)


class World:
    """A lake with two branches, and fresh rows whenever some are needed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last = 0

    def row(self, day: str) -> tuple[int, str, int]:
        self.last += 1
        return (self.last, day, 0)

    def do(self, on: str, act: str, day: str) -> None:
        held = files(self.store, T, on, day)
        if act == "append":
            add(self.store, T, rows(self.row(day), self.row(day)), branch=on)
        elif act == "replace":
            overwrite(self.store, T, rows(self.row(day)), branch=on, day=day)
        elif act == "remove" and held:
            delete_rows(self.store, T, {held[-1].path: [0]}, branch=on)
        elif act == "compact" and held and not self._has_deletes(on):
            compact(self.store, T, branch=on, day=day)

    def _has_deletes(self, on: str) -> bool:
        from runnel.lake.iceberg.manifests import read_entries
        from tests.lake.table_changes import metadata

        return any(not entry.is_data for entry in read_entries(self.store, metadata(self.store, T, on)))

    def days(self, ref: str) -> dict[str, Rows]:
        found = read(self.store, T, ref)
        return {day: Counter(row for row in found if row[1] == day) for day in DAYS}


def combined(base: Rows, ours: Rows, theirs: Rows) -> Rows | None:
    """Return the rows that a day must have after the merge; None where it must be refused."""
    if theirs == base:
        return ours
    if ours == base:
        return theirs
    if base - ours or base - theirs:
        return None
    return base + (ours - base) + (theirs - base)


@settings(
    max_examples=int(os.environ.get("RUNNEL_EXAMPLES", "8")),
    deadline=None,
    derandomize="RUNNEL_EXAMPLES" not in os.environ,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(ACTS, min_size=2, max_size=7), st.lists(ACTS, max_size=4))
def test_the_law_of_merge(
    tmp_path: Path, first: list[tuple[str, str, str]], second: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path / os.urandom(8).hex()
    store = Store.open(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
    world = World(store)
    create(store, T, rows(*(world.row(day) for day in (*DAYS, *DAYS))), by="day")
    branch(store, "dev")
    base = world.days("main")
    for acts in (first, second):
        for act in acts:
            world.do(*act)
        ours, theirs = world.days("main"), world.days("dev")
        expected = {day: combined(base[day], ours[day], theirs[day]) for day in DAYS}
        try:
            done = merge_branch(store, "dev").commit
        except MergeConflict:
            assert world.days("main") == ours
            break
        assert world.days("main") == expected
        if done is not None:
            try:
                undone = revert_commit(store, done.id)
                assert world.days("main") == ours
                revert_commit(store, undone.id)
            except RevertConflict as conflict:  # nothing came later
                raise AssertionError from conflict
            assert world.days("main") == expected
        base = theirs
    store.close()
