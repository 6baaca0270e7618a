"""Read a table or a query of a database as a feed: in full when it has changed, or from a watermark on."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from runnel import temp_dirs
from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows, FetchPlace, TargetTable
from runnel.connect.jdbc import full_read, watermark_read
from runnel.connect.jdbc.database import SourceDatabase, build_database
from runnel.connect.jdbc.row_files import LocalRowFiles, RowFiles
from runnel.connect.jdbc.table_inspection import TableInspection, inspect_table
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.flow import Source
from runnel.declare.model.secret import carry_if_secret
from runnel.model.progress import Progress


class JdbcFeed:
    """The feed of `rn.jdbc`. Each call reads one snapshot of the database."""

    def __init__(self, source: Source, origin: Jdbc, root: Path) -> None:
        self._source = source
        self._origin = origin
        self._root = root
        self._target: TargetTable | None = None

    def compare(self, target: TargetTable) -> None:
        """Remember the table that rows are read for."""
        self._target = target

    def find_changes(self, state: FeedState | None, *, max_rows: int | None = None) -> FeedChanges:  # noqa: ARG002 - part of the protocol
        """Return what has changed since a state, by a checksum that the database computes or by the watermark."""
        with self._build_database() as database:
            inspection = self._inspect_table(database)
            detect_changes = (
                watermark_read.find_changes if inspection.watermark_column is not None else full_read.find_changes
            )
            changes = detect_changes(
                database, inspection, _state_if_same_declaration(inspection, state), is_first=state is None
            )
            if changes.is_empty or database.address.kind == "sqlite":  # its file may be on this machine only
                return changes
            return replace(changes, estimate_bytes=cache(lambda: self._estimate_bytes(changes.rows)))

    def fetch(
        self, state: FeedState | None, _changes: FeedChanges, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        """Read changed rows into Parquet as they are now; these may be more than were announced."""
        report_progress("connecting", 0, None)
        with self._build_database() as database:
            inspection = self._inspect_table(database)
            previous = _state_if_same_declaration(inspection, state)
            has_target = previous is not None or inspection.watermark_column is not None
            files = LocalRowFiles(folder, report_progress, self._target if has_target else None)
            return _fetch_rows(database, inspection, previous, files)

    def fetch_in_units(self, state: FeedState | None, _changes: FeedChanges, place: FetchPlace) -> FetchedRows:
        """Read changed rows in units: a whole table of PostgreSQL in `partitions=` units, anything else in one."""
        from runnel.connect.jdbc.table_units import SharedRowFiles, WholeFetch

        place.report_progress("connecting", 0, None)
        with self._build_database() as database:
            inspection = self._inspect_table(database)
            previous = _state_if_same_declaration(inspection, state)
            is_whole = inspection.watermark_column is None or watermark_read.is_whole_read(previous)
            if is_whole and database.address.kind == "postgresql":
                with temp_dirs.create_scoped("feed") as folder:
                    files = SharedRowFiles(place, Path(folder), place.base if previous is not None else None)
                    return _fetch_rows(database, inspection, previous, files)
        work = WholeFetch(self._carry_secrets(), state, place.base, place.scratch)
        [fetched] = place.runner.run(
            work, [0], lambda done, total: place.report_progress("reading on executors", done, total)
        )
        return fetched

    def _carry_secrets(self) -> "JdbcFeed":
        """Return a feed that another machine can read."""
        origin, at = self._origin, str(self._source.place)
        origin = replace(
            origin,
            url=carry_if_secret(origin.url, at),
            user=carry_if_secret(origin.user, at),
            password=carry_if_secret(origin.password, at),
        )
        return JdbcFeed(replace(self._source, origin=origin), origin, self._root)

    def _estimate_bytes(self, rows: int | None) -> int:
        with self._build_database() as database:
            inspection = self._inspect_table(database)
            estimate = database.estimate_size(self._origin, inspection.relation, inspection.columns)
            return (estimate.rows if rows is None else rows) * estimate.row_bytes

    def _build_database(self) -> SourceDatabase:
        return build_database(self._origin, self._root, str(self._source.place))

    def _inspect_table(self, database: SourceDatabase) -> TableInspection:
        return inspect_table(database, self._source, self._origin)


def _fetch_rows(
    database: SourceDatabase, inspection: TableInspection, previous: FeedState | None, files: RowFiles
) -> FetchedRows:
    if inspection.watermark_column is None:
        return full_read.fetch(database, inspection, files)
    return watermark_read.fetch(database, inspection, previous, files)


def _state_if_same_declaration(inspection: TableInspection, state: FeedState | None) -> FeedState | None:
    """Return the state, or None if its rows were read by another declaration."""
    return state if state is not None and state.get("declared") == inspection.declaration_hash else None
