"""What is kept in memory of versions is bounded by what it holds, and what was used last stays."""

import pytest
from cachetools import LRUCache

from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.store import Store
from runnel.names import TableName
from tests.lake.factories import add, create, rows

ORDERS = TableName("ods", "orders")


def test_versions_that_were_used_last_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create(store, "ods.orders", rows())
    monkeypatch.setattr(table_metadata, "_cache", LRUCache(60, getsizeof=table_metadata._count_parts))
    locations = [store.state("main")[ORDERS].location]
    for number in range(8):
        add(store, "ods.orders", rows((number, "a", number)))
        locations.append(store.state("main")[ORDERS].location)
        assert table_metadata.load_metadata(store, locations[0]) is table_metadata.load_metadata(
            store, locations[0]
        )  # used again and again
    cached_locations = set(table_metadata._cache)
    assert locations[0] in cached_locations and locations[-1] in cached_locations
    assert len(cached_locations) < len(locations)
    assert table_metadata._cache.currsize <= 60


def test_a_version_larger_than_the_cache_is_cached_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create(store, "ods.orders", rows())
    monkeypatch.setattr(table_metadata, "MAX_CACHED_PARTS", 5)
    monkeypatch.setattr(table_metadata, "_cache", LRUCache(5, getsizeof=table_metadata._count_parts))
    location = store.state("main")[ORDERS].location
    assert table_metadata.load_metadata(store, location) is table_metadata.load_metadata(store, location)


def test_lists_of_manifests_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "CACHED_MANIFESTS", 10)
    cache = LRUCache[str, object](10, getsizeof=manifests._count_manifests)
    for name in "abc":
        cache[name] = (None,) * 3
        cache.get("a")
    assert [name for name in "abc" if name in cache] == ["a", "c"]
    cache["long"] = (None,) * 30
    assert list(cache) == ["long"]


def test_manifests_are_read_once_until_the_cache_is_cleared(store: Store) -> None:
    create(store, "ods.orders", rows((1, "a", 1)))
    manifests.clear_cache()
    metadata = table_metadata.load_metadata(store, store.state("main")[ORDERS].location)
    (manifest,) = manifests.read_manifests(store, metadata)
    live_entries = manifests.read_manifest_entries(store, manifest)
    assert manifests.read_manifests(store, metadata)[0] is manifest
    assert manifests.read_manifest_entries(store, manifest) is live_entries
    manifests.clear_cache()
    assert manifests.read_manifest_entries(store, manifest) is not live_entries
