"""What is kept in memory of versions is bounded by what it holds, and what was used last stays."""

import pytest

from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.store import Store
from runnel.names import TableName
from tests.lake.factories import add, create, rows

ORDERS = TableName("ods", "orders")


def test_versions_that_were_used_last_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create(store, "ods.orders", rows())
    table_metadata.clear_cache()
    monkeypatch.setattr(table_metadata, "MAX_CACHED_PARTS", 60)
    locations = [store.state("main")[ORDERS].location]
    for number in range(8):
        add(store, "ods.orders", rows((number, "a", number)))
        locations.append(store.state("main")[ORDERS].location)
        assert table_metadata.load_metadata(store, locations[0]) is table_metadata.load_metadata(
            store, locations[0]
        )  # used again and again
    kept = set(table_metadata._cache)
    assert locations[0] in kept and locations[-1] in kept and len(kept) < len(locations)
    assert (
        table_metadata._cached_parts
        == sum(table_metadata._count_parts(one) for one in table_metadata._cache.values())
        <= 60
    )


def test_lists_of_manifests_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "CACHED_MANIFESTS", 10)
    cache = manifests._ManifestCache()
    for name in "abc":
        cache.add_manifests(name, (None,) * 3)  # type: ignore[arg-type]
        cache.get_manifests("a")
    assert [name for name in "abc" if cache.get_manifests(name) is not None] == ["a", "c"]
