"""Read a table or a query of a database as a feed: in full when it has changed, or from a watermark on."""

from pathlib import Path

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows, TargetTable
from runnel.connect.jdbc import full_read, watermark_read
from runnel.connect.jdbc.database import SourceDatabase, build_database
from runnel.connect.jdbc.table_inspection import TableInspection, inspect_table
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.flow import Source
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
            return detect_changes(
                database, inspection, _state_if_same_declaration(inspection, state), is_first=state is None
            )

    def fetch(
        self, state: FeedState | None, _changes: FeedChanges, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        """Read changed rows into Parquet as they are now; these may be more than were announced."""
        report_progress("connecting", 0, None)
        with self._build_database() as database:
            inspection = self._inspect_table(database)
            previous = _state_if_same_declaration(inspection, state)
            if inspection.watermark_column is None:
                return full_read.fetch(
                    database, inspection, folder, report_progress, self._target if previous is not None else None
                )
            return watermark_read.fetch(database, inspection, previous, folder, report_progress, target=self._target)

    def _build_database(self) -> SourceDatabase:
        return build_database(self._origin, self._root, str(self._source.place))

    def _inspect_table(self, database: SourceDatabase) -> TableInspection:
        return inspect_table(database, self._source, self._origin)


def _state_if_same_declaration(inspection: TableInspection, state: FeedState | None) -> FeedState | None:
    """Return the state, or None if its rows were read by another declaration."""
    return state if state is not None and state.get("declared") == inspection.declaration_hash else None
