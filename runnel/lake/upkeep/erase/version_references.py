"""The trail of a table: every place in the catalog database that names one of its versions, to be read and swapped.

Within one transaction of the caller's. It never looks into the files that the versions are.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.diff.content_id import is_location
from runnel.lake.flow_state.append_log import Tape, name_in_slot
from runnel.lake.flow_state.results import result_of
from runnel.names import TableName


class Appeared(Exception):
    """A version came up that was not looked at: the erasure goes round again."""


@dataclass(frozen=True)
class Step:
    """A change that a commit recorded."""

    line: str
    table: str
    seq: int
    before: str | None
    after: str | None
    content: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Head:
    """A table's newest version on a branch, as Runnel last published it."""

    branch: str
    table: str
    location: str
    content: str


@dataclass(frozen=True)
class Place:
    """A row of Iceberg's catalog: of a branch, or of a slot."""

    catalog: str
    layer: str
    name: str
    location: str
    previous: str | None


@dataclass(frozen=True)
class Made:
    """A result of one of the tables, or one that used some of their versions: `own` are those that it made."""

    table: str
    key: str
    own: frozenset[str]
    used: frozenset[str]


@dataclass(frozen=True)
class TapeRow:
    """The tape of a table, as a stream has it; `text` is all that the stream's row says of its tapes."""

    branch: str
    stream: str
    table: str
    tape: Tape
    text: str


@dataclass(frozen=True)
class Trail:
    """Everything that names a version of some tables."""

    steps: tuple[Step, ...]
    heads: tuple[Head, ...]
    places: tuple[Place, ...]
    branches: tuple[str, ...]
    results: tuple[Made, ...] = ()
    tapes: tuple[TapeRow, ...] = ()

    @property
    def tape_locations(self) -> frozenset[str]:
        """Return the tapes of streams: private versions, with snapshots that must stay."""
        return frozenset(row.tape.location for row in self.tapes)

    @property
    def locations(self) -> frozenset[str]:
        """Return every version that is named anywhere."""
        found = {text for step in self.steps for text in (step.before, step.after, step.content)}
        found |= {text for head in self.heads for text in (head.location, head.content)}
        found |= {place.location for place in self.places} | {text for made in self.results for text in made.own}
        found |= {text for row in self.tapes for text in (row.tape.location, row.tape.reached)}
        return frozenset(text for text in found if text and is_location(text))

    @property
    def newest(self) -> list[str]:
        """Return the versions of branches, main's first."""
        heads = sorted(self.heads, key=lambda head: (head.branch != "main", head.branch))
        return list(dict.fromkeys(head.location for head in heads))


@dataclass(frozen=True)
class Swap:
    """What stands for what from now on: versions, versions as content, and in each version files."""

    locations: Mapping[str, str]
    contents: Mapping[str, str]
    files: Mapping[str, Mapping[str, str | None]]


def trail(connection: Connection, names: Iterable[str]) -> Trail:
    """Return everything that names a version of the tables called `names`."""
    wanted = sorted(names)
    change, head = schema.changes.c, schema.heads.c
    steps = connection.execute(sa.select(schema.changes).where(change.table_name.in_(wanted)).order_by(change.seq))
    heads = connection.execute(sa.select(schema.heads).where(head.table_name.in_(wanted)))
    place = schema.iceberg_tables.c
    full_name = place.table_namespace + "." + place.table_name
    in_slots = [".".join(name_in_slot(TableName.stored(name))) for name in wanted]
    places = connection.execute(
        sa.select(schema.iceberg_tables).where(full_name.in_([*wanted, *in_slots]), place.metadata_location != "")
    )
    branches = connection.execute(sa.select(schema.branches.c.name)).scalars()
    return Trail(
        tuple(_step(row) for row in steps),
        tuple(Head(row.branch, row.table_name, row.location, row.content) for row in heads),
        tuple(_place(row) for row in places),
        tuple(branches),
        tuple(_results(connection, frozenset(wanted))),
        tuple(_tapes(connection, frozenset(wanted))),
    )


def _tapes(connection: Connection, names: frozenset[str]) -> Iterator[TapeRow]:
    columns = schema.streams.c
    for row in connection.execute(sa.select(columns.branch, columns.table_name, columns.tapes)):
        for table, tape in json.loads(row.tapes).items():
            if table in names:
                yield TapeRow(row.branch, row.table_name, table, Tape(**tape), row.tapes)


def _results(connection: Connection, names: frozenset[str]) -> Iterator[Made]:
    for row in connection.execute(sa.select(schema.results)):
        result = result_of(row)
        aside = result.quarantine if f"quarantine.{row.table_name.replace('.', '_')}" in names else None
        own = {row.location} if row.table_name in names else set()
        own |= {aside.location} if aside else set()
        used = {head.location for table, head in result.inputs.items() if str(table) in names}
        if own or used:
            yield Made(row.table_name, row.key, frozenset(own), frozenset(used))


def forget_results(connection: Connection, found: Trail, unchanged: Container[str]) -> None:
    """Forget the results of the tables, and those that used a version of them which is not `unchanged`."""
    columns = schema.results.c
    for made in found.results:
        if made.own or any(location not in unchanged for location in made.used):
            here = sa.and_(columns.table_name == made.table, columns.key == made.key)
            connection.execute(schema.results.delete().where(here))


def rename_files(connection: Connection, names: Iterable[str], renamed: Mapping[str, Sequence[str]]) -> None:
    """Make the ingest position of tables name the files that hold the rows now; a path may have become several."""
    columns, table = schema.ingested.c, schema.ingested
    keys = (columns.line, columns.table_name, columns.path, columns.seq)
    rows = connection.execute(sa.select(*keys, columns.files).where(columns.table_name.in_(sorted(names)))).all()
    for row in rows:
        files = json.loads(row.files)
        now = list(dict.fromkeys(new for file in files for new in renamed.get(file, (file,))))
        if now != files:
            here = sa.and_(*(column == row._mapping[column.name] for column in keys))
            connection.execute(table.update().where(here).values(files=json.dumps(now)))


def sharing(connection: Connection, folders: Iterable[str]) -> set[str]:
    """Return the tables that have a version below one of the folders: another engine may have renamed a table."""
    change, head, place = schema.changes.c, schema.heads.c, schema.iceberg_tables.c
    full_name = place.table_namespace + "." + place.table_name
    found: set[str] = set()
    for folder in folders:
        for name, location in (
            (change.table_name, change.after),
            (head.table_name, head.location),
            (full_name, place.metadata_location),
        ):
            below = location.startswith(folder.rstrip("/") + "/", autoescape=True)
            found |= set(connection.execute(sa.select(name).where(below).distinct()).scalars())
    return found


def swap(connection: Connection, found: Trail, swapped: Swap) -> set[str]:
    """Put new versions in the place of old ones, and return the lines whose history changed."""
    lines: set[str] = set()
    for step in found.steps:
        values = _swapped_step(step, swapped)
        if values:
            lines.add(step.line)
            change = schema.changes.c
            here = sa.and_(change.line == step.line, change.table_name == step.table, change.seq == step.seq)
            connection.execute(schema.changes.update().where(here).values(values))
    for head in found.heads:
        values = {
            "location": swapped.locations.get(head.location, head.location),
            "content": swapped.contents.get(head.content, head.content),
        }
        known = sa.and_(schema.heads.c.branch == head.branch, schema.heads.c.table_name == head.table)
        connection.execute(schema.heads.update().where(known).values(values))
    for place in found.places:
        if place.location in swapped.locations:
            _swap_place(connection, place, swapped.locations)
    _swap_tapes(connection, found, swapped)
    return lines


def _swap_tapes(connection: Connection, found: Trail, swapped: Swap) -> None:
    """Let streams read the new tapes; one that has just wound its tape is looked at again."""
    rows: dict[tuple[str, str], list[TapeRow]] = {}
    for row in found.tapes:
        rows.setdefault((row.branch, row.stream), []).append(row)
    columns = schema.streams.c
    for (branch, stream), own in rows.items():
        tapes = json.loads(own[0].text)
        for row in own:
            tapes[row.table] = {
                "location": swapped.locations.get(row.tape.location, row.tape.location),
                "reached": swapped.locations.get(row.tape.reached, row.tape.reached),
                "content": swapped.contents.get(row.tape.content, row.tape.content),
            }
        here = sa.and_(columns.branch == branch, columns.table_name == stream, columns.tapes == own[0].text)
        update = schema.streams.update().where(here).values(tapes=json.dumps(tapes))
        if tapes != json.loads(own[0].text) and connection.execute(update).rowcount != 1:
            raise Appeared


def _swapped_step(step: Step, swapped: Swap) -> dict[str, str]:
    values = {
        "before": swapped.locations.get(step.before or ""),
        "after": swapped.locations.get(step.after or ""),
        "content": swapped.contents.get(step.content or ""),
        "detail": _detail(step, swapped),
    }
    return {name: value for name, value in values.items() if value is not None}


def _detail(step: Step, swapped: Swap) -> str | None:
    """Return the detail of a compaction with the names that its files have now; None where nothing changes."""
    replaces = step.detail.get("replaces")
    old, new = swapped.files.get(step.before or "", {}), swapped.files.get(step.after or "", {})
    if not replaces or not (old or new):
        return None
    named: dict[str, list[str]] = {}
    for file, gone in replaces.items():
        current = new.get(file, file)
        if current is not None:
            named[current] = [name for name in (old.get(path, path) for path in gone) if name is not None]
    return json.dumps({**step.detail, "replaces": named}, sort_keys=True)


def _swap_place(connection: Connection, place: Place, locations: Mapping[str, str]) -> None:
    columns = schema.iceberg_tables.c
    here = sa.and_(
        columns.catalog_name == place.catalog,
        columns.table_namespace == place.layer,
        columns.table_name == place.name,
        columns.metadata_location == place.location,
    )
    values = {
        "metadata_location": locations[place.location],
        "previous_metadata_location": locations.get(place.previous or ""),
    }
    if connection.execute(schema.iceberg_tables.update().where(here).values(values)).rowcount != 1:
        raise Appeared  # another engine, which knows no lock of ours, has just moved it


def _step(row: Row[Any]) -> Step:
    return Step(row.line, row.table_name, row.seq, row.before, row.after, row.content, json.loads(row.detail))


def _place(row: Row[Any]) -> Place:
    return Place(
        row.catalog_name,
        row.table_namespace,
        row.table_name,
        row.metadata_location,
        row.previous_metadata_location,
    )
