"""Deletes by value, which another engine wrote, are carried over in its own manifests."""

from typing import Any

import pytest

from runnel.errors import Mistake
from runnel.lake.iceberg.manifests import MERGE_COUNT, has_equality_deletes, read_manifests
from runnel.lake.iceberg.snapshots import VersionEdit
from runnel.lake.store import Store
from runnel.lake.table_writer import publish_edit
from runnel.names import TableName
from tests.lake.factories import add, create, rows
from tests.lake.table_changes import delete_rows, equality_delete, files, metadata, overwrite

T, ORDERS = "ods.orders", TableName("ods", "orders")


def by_value(store: Store) -> set[str]:
    found = read_manifests(store, metadata(store, T))
    return {manifest.manifest_path for manifest in found if has_equality_deletes(store, manifest)}


def delete_by_value(store: Store, count: int = 1) -> None:
    file = files(store, T)[0]

    def edit(version: Any) -> VersionEdit:
        made = [equality_delete(file) for _ in range(count)]
        for number, delete in enumerate(made):
            delete[1] = f"{delete.file_path}-{number}"
        return VersionEdit(added=made)

    publish_edit(store, "main", ORDERS, edit, "delete by value")


def test_their_manifests_are_not_merged(store: Store) -> None:
    create(store, T, rows((1, "a", 1)))
    for _ in range(3):
        delete_by_value(store)
    theirs = by_value(store)
    for number in range(2 * MERGE_COUNT):
        add(store, T, rows((number, "a", 1)))
        delete_rows(store, T, {files(store, T)[-1].path: [0]})
    assert len(theirs) == 3 and by_value(store) == theirs
    assert len(read_manifests(store, metadata(store, T))) < 3 * MERGE_COUNT


def test_one_that_is_no_longer_needed_is_left_out_whole(store: Store) -> None:
    create(store, T, rows((1, "a", 1)))
    delete_by_value(store, 2)
    overwrite(store, T, rows((2, "a", 1)))
    assert by_value(store) == set()


def test_a_part_of_one_is_left_to_another_engine(store: Store) -> None:
    create(store, T, rows((1, "a", 1)))
    delete_by_value(store, 2)

    def edit(version: Any) -> VersionEdit:
        from runnel.lake.iceberg.manifests import read_entries

        return VersionEdit(
            removed=[entry for entry in read_entries(store, metadata(store, T)) if entry.is_equality_delete][:1]
        )

    with pytest.raises(Mistake, match="TABLE_EQUALITY_DELETES"):
        publish_edit(store, "main", ORDERS, edit, "remove one of them")
