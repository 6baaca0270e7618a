"""Name the places that may hold data of erased rows as text, which no condition on columns can search.

Reads the catalog database, and the names of log files.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.control.declarations import read_sources
from runnel.names import TableName

_SERVICE_DAYS = "a running service deletes them after 30 days"


@dataclass(frozen=True)
class UnsearchedPlace:
    """A place that an erasure leaves as it is: what it is, how many entries it has, and what to do about it."""

    place: str
    entries: int
    fix: str


def find_unsearched_places(connection: Connection, table: TableName) -> tuple[UnsearchedPlace, ...]:
    """Return the places in the catalog database, and the table's source; those without entries are left out."""
    return tuple(place for place in _iter_places(connection, table) if place.entries)


def find_log_files(folder: Path) -> tuple[UnsearchedPlace, ...]:
    """Return the log files below a folder of this machine, if there are any."""
    count = sum(path.is_file() for path in folder.rglob("*")) if folder.is_dir() else 0
    fix = f"search {folder} here and on machines with other workers, and delete the files that hold the rows"
    return (UnsearchedPlace("log files", count, fix),) if count else ()


def _iter_places(connection: Connection, table: TableName) -> Iterator[UnsearchedPlace]:
    def count(counted: sa.Table) -> int:
        return int(connection.execute(sa.select(sa.func.count()).select_from(counted)).scalar_one())

    runs_fix = "their errors and messages may quote rows: `runnel runs` and `runnel runs RUN` show them"
    yield UnsearchedPlace("records of runs", count(schema.runs), runs_fix)
    yield UnsearchedPlace("events of runs", count(schema.events), _SERVICE_DAYS)
    alarms_fix = f"`runnel alarms` shows them; {_SERVICE_DAYS}, once they are over"
    yield UnsearchedPlace("alarms", count(schema.alarms), alarms_fix)
    if str(table) in (read_sources(connection) or {}):
        fix = "delete the rows there, otherwise a run that reads them again ingests them again"
        yield UnsearchedPlace(f"what source {table} reads", 1, fix)
