"""What another engine does straight in the catalog is noticed, adopted as a commit, and never lost."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from runnel.errors import VersionConflict
from runnel.lake.history.branches import fork_branch
from runnel.lake.history.commits import read_changes
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from tests.lake.factories import add, create, read, rows


def outside(store: Store, branch: str = "main") -> SqlCatalog:
    """Return PyIceberg's own catalog over the same database: it knows nothing of Runnel."""
    uri = store.db.url.render_as_string(hide_password=False)
    return SqlCatalog(branch, uri=uri, warehouse=store.warehouse)


def test_rows_of_another_engine_become_a_commit(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    outside(both).load_table("ods.orders").append(rows((2, "d2", 7)))
    head = both.commit("main")
    assert (head.kind, head.author) == ("adopt", "another engine")
    assert [str(change.table) for change in both.db.read(lambda c: read_changes(c, head.id))] == ["ods.orders"]
    assert len(read(both, "ods.orders")) == 2 and len(read(both, "ods.orders", "main~1")) == 1
    assert both.commit("main") == head, "it is adopted once"


def test_a_table_created_and_one_dropped_elsewhere(both: Store) -> None:
    create(both, "ods.orders", rows((1, "d1", 5)))
    other = outside(both)
    other.create_namespace("lab")
    other.create_table("lab.Trial Run", rows((1, "d1", 5)).schema)
    other.drop_table("ods.orders")
    assert [str(name) for name in both.state("main")] == ["lab.Trial Run"]
    assert [str(name) for name in both.state("main~1")] == ["ods.orders"]
    assert len(read(both, "ods.orders", "main~1")) == 1


def test_adoption_and_publish_are_one_transaction(both: Store) -> None:
    create(both, "ods.a", rows((1, "d1", 5)))
    create(both, "ods.b", rows((1, "d1", 5)))
    outside(both).load_table("ods.a").append(rows((2, "d2", 7)))
    made = add(both, "ods.b", rows((3, "d3", 9)))
    assert both.commit(f"{made.id}~1").kind == "adopt"
    assert len(read(both, "ods.a")) == 2 and len(read(both, "ods.b")) == 2


def test_a_publish_does_not_overwrite_another_engine(both: Store) -> None:
    create(both, "ods.a", rows((1, "d1", 5)))
    table, version = next(iter(both.state("main").items()))
    outside(both).load_table("ods.a").append(rows((2, "d2", 7)))
    from runnel.lake.history.commits import CommitChange

    with pytest.raises(VersionConflict):
        publish(both.db, CommitDraft("main", "stale", "eve", (CommitChange(table, version.location, None),)))
    assert len(read(both, "ods.a")) == 2


def test_other_engines_write_to_branches_too(both: Store) -> None:
    create(both, "ods.a", rows((1, "d1", 5)))
    fork_branch(both.db, "dev", both.commit("main"), "ada")
    outside(both, "dev").load_table("ods.a").append(rows((2, "d2", 7)))
    assert len(read(both, "ods.a", "dev")) == 2 and len(read(both, "ods.a", "main")) == 1
    assert both.commit("dev").kind == "adopt" and both.commit("main").kind == "write"


def test_another_engine_reads_what_runnel_wrote(both: Store) -> None:
    create(both, "ods.a", rows((1, "d1", 5)), by="day")
    for number in range(2, 25):
        add(both, "ods.a", rows((number, f"d{number % 3}", 7)))
    found: pa.Table = outside(both).load_table("ods.a").scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(1, 25))
    filtered = outside(both).load_table("ods.a").scan(row_filter="day = 'd2'").to_arrow()
    assert {row["day"] for row in filtered.to_pylist()} == {"d2"}
