"""Mend a lake whose folder was moved or copied: Iceberg's paths are absolute.

Every kept version is written anew for the new place, beside the old files, which nothing changes; then one
transaction points the whole history at them. Until then the lake is as it was, and can be moved back; the old files
are swept later. Data is not copied, and registered files outside the warehouse stay where they are.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Broken, Moved
from runnel.lake import failpoints, manifests, schema, tables
from runnel.lake.branches import lock
from runnel.lake.ownership import check_new_place, claim
from runnel.lake.pins import pinned
from runnel.lake.upkeep import known, leases
from runnel.lake.upkeep.live import Progress
from runnel.lake.upkeep.moving import Rewriting, Swap
from runnel.lake.upkeep.roots import registered, unexpired, uses

if TYPE_CHECKING:
    from runnel.lake.store import Store

Place = Callable[[str], str]


@dataclass(frozen=True)
class Relocated:
    """What a relocation did: from where to where, and how many versions and files were written anew."""

    old: str
    new: str
    versions: int = 0
    files: int = 0


def relocate(store: "Store", *, adopt: bool = False, progress: Progress | None = None) -> Relocated:
    """Make a lake's metadata say that its files are at `store.warehouse`; nothing happens where it does.

    The store was opened with `moved=True`. Raises Broken, having changed nothing, where a file is not at the new
    place, and LAKE_FOREIGN where the place belongs to another lake or catalog, unless this one is to `adopt` it. A
    relocation that crashed is repeated from its beginning.
    """
    leases.end(store.db, store.db.read(store.db.now))
    with pinned(store.db, "relocate", alone=True):
        old = store.recorded_warehouse()
        if not adopt:
            check_new_place(store)
        if old == store.warehouse:
            claim(store)
            return Relocated(old, old)
        swap = Swap(old, store.warehouse)
        versions = [location for location in store.db.read(_versions) if swap.moves(location)]
        rewriting = Rewriting(store, swap)
        for done, version in enumerate(versions, 1):
            rewriting.lists(version)
            _tell(progress, done, 2 * len(versions))
        versions += _readable(
            rewriting, [at for at in store.db.read(_convenient) if swap.moves(at) and at not in versions]
        )
        place = _placing(swap, frozenset(versions))
        for done, version in enumerate(versions, 1):
            rewriting.metadata(version, place)
            _tell(progress, len(versions) + done, 2 * len(versions))
        failpoints.reach(failpoints.RELOCATE_WRITTEN)
        store.db.write(lambda connection: _point(connection, swap, place, frozenset(versions)))
        failpoints.reach(failpoints.RELOCATE_AFTER_COMMIT)
        claim(store)
        tables.forget()
        manifests.forget()
        return Relocated(old, store.warehouse, len(versions), rewriting.files)


def _versions(connection: Connection) -> list[str]:
    """Return the versions that commits, branches and slots need."""
    found = {use.location for use in uses(connection, unexpired(connection))}
    return sorted(found | {row.location for row in registered(connection) if row.is_table})


def _convenient(connection: Connection) -> list[str]:
    """Return the versions of results, and those that current ones were made of."""
    return sorted({version.location for found in (known.kept, known.inputs) for version in found(connection)})


def _readable(rewriting: Rewriting, wanted: list[str]) -> list[str]:
    """Return the versions that can be read, their lists written anew; nobody waits for the others."""
    found = []
    for version in wanted:
        with suppress(Broken):
            rewriting.lists(version)
            found.append(version)
    return found


def _placing(swap: Swap, versions: frozenset[str]) -> Place:
    """Return what tells where a location is now; versions have fresh names, the rest has only moved."""
    return lambda location: swap.fresh(location) if location in versions else swap(location)


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress:
        progress("relocate", done, total)


def _point(connection: Connection, swap: Swap, place: Place, versions: frozenset[str]) -> None:
    """Point every row at the new place, in one transaction."""
    lock(connection)
    if connection.execute(sa.select(schema.lake.c.warehouse)).scalar_one() == swap.new:
        return  # an earlier attempt took effect
    missed = [location for location in _versions(connection) if swap.moves(location) and location not in versions]
    if missed:
        raise Moved("main", [f"the table at {missed[0]}"])
    known.forget_at(
        connection,
        [at.location for at in known.kept(connection) if swap.moves(at.location) and at.location not in versions],
    )
    for table, names in (
        (schema.iceberg_tables, ("metadata_location", "previous_metadata_location")),
        (schema.iceberg_namespaces, ("property_value",)),
        (schema.heads, ("location", "content")),
        (schema.changes, ("before", "after", "content")),
        (schema.results, ("location", "content", "quarantine_location", "quarantine_content")),
        (schema.garbage, ("path",)),
        (schema.deliveries, ("location", "content")),
    ):
        _rewrite(connection, table, dict.fromkeys(names, place))
    _rewrite(connection, schema.changes, {"detail": lambda text: _in_json(text, place)})
    _rewrite(connection, schema.results, {"detail": lambda text: _in_inputs(text, place)})
    _rewrite(connection, schema.ingested, {"files": lambda text: _in_json(text, place)})
    connection.execute(schema.lake.update().values(warehouse=swap.new))
    failpoints.reach(failpoints.RELOCATE_BEFORE_COMMIT)


def _rewrite(connection: Connection, table: sa.Table, columns: dict[str, Place]) -> None:
    """Change columns of every row; only rows that differ afterwards are written."""
    keys = [column.name for column in table.primary_key.columns]
    changed: list[dict[str, Any]] = []
    for row in connection.execute(sa.select(*(table.c[name] for name in dict.fromkeys([*keys, *columns])))):
        values = row._mapping
        new = {name: values[name] and change(values[name]) for name, change in columns.items()}
        if any(new[name] != values[name] for name in columns):
            changed.append({f"key_{name}": values[name] for name in keys} | {f"new_{name}": new[name] for name in new})
    if changed:
        here = sa.and_(*(table.c[name] == sa.bindparam(f"key_{name}") for name in keys))
        moved: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in columns}
        connection.execute(table.update().where(here).values(moved), changed)


def _in_inputs(text: str, place: Place) -> str:
    """Return a result's detail with the versions that it used moved; its code may name paths, and stays as it is."""
    detail = json.loads(text)
    moved = json.loads(_in_json(json.dumps(detail["inputs"]), place))
    return json.dumps({**detail, "inputs": moved}, sort_keys=True)


def _in_json(text: str, place: Place) -> str:
    """Return JSON with every location in it, wherever it stands, moved."""

    def moved(value: Any) -> Any:
        if isinstance(value, str):
            return place(value)
        if isinstance(value, list):
            return [moved(item) for item in value]
        return {place(name): moved(item) for name, item in value.items()} if isinstance(value, dict) else value

    return json.dumps(moved(json.loads(text)), sort_keys=True)
