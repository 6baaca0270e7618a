"""Apply a log of changes: stage the next version of the table that follows from it. Publishes nothing.

Only keys of log rows that came or went are looked at, and of these only those whose rows in the table differ are
written: the table's other rows stay in their files. Where that can't be told, all is applied anew, from the log alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.changes import failpoints
from runnel.connect.changes.change_sql import Rule, listed, names, rule_of
from runnel.connect.changes.key_lookup import Keys
from runnel.connect.changes.target_version import created, evolved, follows, log_before
from runnel.connect.feed.protocol import Progress
from runnel.connect.feed.upsert import Displaced, displaced
from runnel.connect.ingest.target_version import Target
from runnel.declare.model.flow import Source
from runnel.errors import Broken, RunnelError
from runnel.lake.diff.file_delta import delta, rows_apart
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import entries
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS, RowWriter
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.scan.duckdb_connection import connect
from runnel.lake.scan.duckdb_types import Unscannable, literal
from runnel.lake.scan.scan_sql import rows_sql
from runnel.plan.facts import Head

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_KEYS, _MADE, _DIFFERING = "runnel_keys", "runnel_made", "runnel_differing"


@dataclass(frozen=True)
class Applied:
    """A staged version. `rows` were written; `left_out` rows of the log have no key, or no place in the sequence."""

    location: str
    rows: int
    left_out: int = 0


def apply(store: "Store", source: Source, log: Head, base: Head | None, deletes: str | None, tell: Progress) -> Applied:
    """Stage the version that follows from a log; `base` is the one that is there.

    `deletes` is the condition of a delete, as `Rule` has it.
    """
    rule = rule_of(source, table_metadata.load(store, log.location).schema(), deletes)
    with _told(source), temp_dirs.folder("changes") as folder, connect() as con:
        work = _Applying(store, source, rule, log, con, Path(folder), tell)
        made = work.onto(base) if base is not None else None
        return made or work.anew(base)


@dataclass(frozen=True)
class _Applying:
    """One log that is being applied."""

    store: "Store"
    source: Source
    rule: Rule
    log: Head
    con: "duckdb.DuckDBPyConnection"
    folder: Path
    tell: Progress

    def anew(self, base: Head | None) -> Applied:
        """Stage the table that follows from the whole log."""
        rows = rows_sql(self.store, self.metadata)
        left_out = self.left_out(rows)
        target = created(self.store, self.source, self.rule, base.location if base else None)
        added = self.written(self.rule.table(rows), target)
        failpoints.reach(failpoints.APPLIED)
        location = stage(self.store, target.location, Edit(added, summary=follows(self.log)))
        failpoints.reach(failpoints.STAGED)
        return Applied(location, _rows(added), left_out)

    def onto(self, base: Head) -> Applied | None:
        """Stage a version that differs from `base` where the log has changed since; None where that can't be told."""
        before = log_before(self.store, self.source, base)
        target = evolved(self.store, self.source, self.rule, base.location) if before else None
        if before is None or target is None:
            return None
        try:
            came = self.touch(before)
        except Broken:  # what it followed from is gone
            return None
        if came is None:
            return None
        left_out = self.left_out(came)
        self.find_differing(base, target)
        rows = f"SELECT made.* FROM {_MADE} AS made SEMI JOIN {_DIFFERING} USING ({self.rule.keys})"
        added = self.written(rows, target)
        failpoints.reach(failpoints.APPLIED)
        location = self.replaced(base.location, target, added)
        failpoints.reach(failpoints.STAGED)
        return Applied(location, _rows(added), left_out)

    def touch(self, before: str) -> str | None:
        """Keep the keys of rows that came or went since a version of the log; return a SELECT of rows that came."""
        if table_metadata.load(self.store, before).table_uuid != self.metadata.table_uuid:
            return None
        found = delta(self.store, before, self.log.location)
        sides = rows_apart(self.store, before, self.log.location, found)
        # Both in the columns that the log has now: a row that lacks a new one is the row that has null there.
        old, new = (rows_sql(self.store, self.metadata, side) for side in sides)
        self.con.execute(f"CREATE TEMP TABLE {_KEYS} AS {self.rule.apart(self.rule.columns, old, new)}")
        return new

    def find_differing(self, base: Head, target: Target) -> None:
        """Keep what the table has for the touched keys, and the keys for which that is another than before."""
        keys = Keys(self.store, self.con, _KEYS, self.rule.key)
        log = keys.rows(self.metadata, list(entries(self.store, self.metadata)))
        self.con.execute(f"CREATE TEMP TABLE {_MADE} AS {self.rule.table(log)}")
        there = entries(self.store, table_metadata.load(self.store, base.location))
        before = keys.rows(target.metadata, list(there))
        apart = self.rule.apart(self.rule.fields, f"SELECT * FROM {_MADE}", before)
        self.con.execute(f"CREATE TEMP TABLE {_DIFFERING} AS {apart}")

    def replaced(self, base: str, target: Target, added: "list[DataFile]") -> str:
        """Stage a version in which rows of differing keys are those of `added`."""
        gone = self.folder / "gone.parquet"
        count = self.con.execute(f"COPY {_DIFFERING} TO {literal(str(gone))} (FORMAT parquet)").fetchall()[0][0]
        taken = displaced(self.store, base, target.metadata, added, self.rule.key, gone) if count else Displaced()
        edit = Edit([*added, *taken.added], taken.removed, updates=target.updates, summary=follows(self.log))
        return stage(self.store, base, edit)

    def written(self, rows: str, target: Target) -> "list[DataFile]":
        """Write rows into data files of the table."""
        writer = RowWriter(self.store, target.metadata)
        columns = listed(names(target.metadata.schema().fields))
        for batch in self.con.sql(f"SELECT {columns} FROM ({rows})").to_arrow_reader(ROW_GROUP_ROWS):
            writer.write(batch)
            self.tell("applying", writer.rows, None)
        return writer.close()

    def left_out(self, rows: str) -> int:
        """Return how many rows can't be applied; raise where the source says that there must be none."""
        sql = f"SELECT count(*) FROM ({rows}) WHERE NOT ({self.rule.is_whole})"
        count = int(self.con.execute(sql).fetchall()[0][0])
        if count and self.source.on_bad == "stop":
            columns = ", ".join(f"`{name}`" for name in (*self.rule.key, *self.rule.sequence))
            what = f"{count:,} rows of the log of `{self.source.table}` are null in one of {columns}"
            fix = 'name columns that are never null, or leave such rows out with on_bad="drop"'
            raise RunnelError("CHANGES_NULL", what, at=str(self.source.place), fix=fix)
        return count

    @property
    def metadata(self) -> "TableMetadata":
        return table_metadata.load(self.store, self.log.location)


def _rows(files: "list[DataFile]") -> int:
    return sum(file.record_count for file in files)


@contextmanager
def _told(source: Source) -> Iterator[None]:
    """Turn what DuckDB says into errors that a user can act on."""
    import duckdb

    at = str(source.place)
    try:
        yield
    except Unscannable as error:
        what = f"the changes of `{source.table}` can't be applied: {error.what}"
        raise RunnelError("CHANGES_UNREADABLE", what, at=at, fix="rewrite the log with Spark") from error
    except duckdb.OutOfMemoryException as error:
        what = f"there is not enough memory or disk space to apply the changes of `{source.table}`"
        raise RunnelError("CHANGES_TOO_LARGE", what, at=at, fix="free some, or use a larger machine") from error
    except duckdb.IOException as error:
        what = f"a file of the lake can't be read: {str(error).splitlines()[0]}"
        raise Broken("LAKE_FILE_UNREADABLE", what, fix="run `runnel fsck` to see which commits need it") from error
    except duckdb.Error as error:
        what = f"`delete_when` of `{source.table}` fails for a row of its log: {str(error).splitlines()[0]}"
        raise RunnelError("CHANGES_CONDITION", what, at=at, fix="write it so that it holds for every row") from error
