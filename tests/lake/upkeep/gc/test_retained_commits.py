"""One pass over the changes finds exactly the versions that the states of all kept commits have."""

import random

import pytest
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.history import branches
from runnel.lake.history.commits import CommitChange, find_commit, read_state
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.upkeep.gc.retained_commits import iter_version_uses, read_unexpired_commits
from runnel.names import TableName

TABLES = [TableName("ods", name) for name in "abcd"]


def grow(store: Store, chance: random.Random) -> None:
    """Commit, fork and delete branches at random; versions are only names here."""
    names, ids = ["main"], [store.commit().id]
    for step in range(45):
        action, branch = chance.random(), chance.choice(names)
        if action < 0.2:
            commit = store.db.read(lambda connection: find_commit(connection, chance.choice(ids)))
            assert commit is not None
            branches.fork_branch(store.db, f"b{step}", commit, "ada")
            names.append(f"b{step}")
        elif action < 0.28 and branch != "main":
            branches.delete_branch(store.db, branch)
            names.remove(branch)
        else:
            state = store.state(branch)
            changes = [
                CommitChange(
                    table,
                    state[table].location if table in state else None,
                    None if table in state and chance.random() < 0.2 else f"/{step}-{table}",
                )
                for table in chance.sample(TABLES, chance.randint(1, 2))
            ]
            ids.append(publish(store.db, CommitDraft(branch, "x", "ada", tuple(changes))).id)
    gone = chance.sample(ids, len(ids) * 2 // 3)
    store.db.write(
        lambda c: c.execute(schema.commits.update().where(schema.commits.c.id.in_(gone)).values(expired_at="x"))
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_versions_that_kept_commits_need(store: Store, seed: int) -> None:
    grow(store, random.Random(seed))

    def expected(connection: Connection) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = {}
        for kept in read_unexpired_commits(connection):
            commit = find_commit(connection, kept.id)
            assert commit is not None
            for table, version in read_state(connection, commit).items():
                found.setdefault((str(table), version.location), set()).add(kept.id)
        return found

    wanted = store.db.read(expected)
    found = store.db.read(lambda connection: list(iter_version_uses(connection, read_unexpired_commits(connection))))
    assert {(use.table, use.location) for use in found} == wanted.keys()
    assert all({use.first.id, use.last.id} <= wanted[use.table, use.location] for use in found)
