"""Read a table or a query without a watermark in full, if the count or checksum of its rows has changed."""

from pathlib import Path

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedFile, FetchedRows, TargetTable
from runnel.connect.jdbc.bad_rows import check_bad_rows, check_key_is_unique, has_unique_key
from runnel.connect.jdbc.database import SourceDatabase
from runnel.connect.jdbc.table_inspection import TableInspection
from runnel.errors import plural
from runnel.model.progress import Progress


def find_changes(
    database: SourceDatabase, inspection: TableInspection, previous: FeedState | None, *, is_first: bool
) -> FeedChanges:
    """Return whether rows differ from those of the previous state. The first time no query is needed for that."""
    if previous is None:
        reason = "reads all rows of" if is_first else "its declaration or columns changed: reads all rows again of"
        return FeedChanges(f"{reason} {inspection.name}", rows=database.estimate_rows(inspection.origin), replaces=True)
    count, checksum = inspection.count_and_checksum(database)
    if [count, checksum] == list(previous["rows"]):
        return FeedChanges(f"{inspection.name} is unchanged", is_empty=True)
    summary = f"{inspection.name} changed: reads its {plural(count, 'row')}"
    return FeedChanges(summary, rows=count, identity=_identity(inspection, count, checksum), replaces=True)


def fetch(
    database: SourceDatabase,
    inspection: TableInspection,
    folder: Path,
    report_progress: Progress,
    target: TargetTable | None,
) -> FetchedRows:
    """Read all rows, and compute the checksum at the same time if the database can do both.

    With a key, only rows that differ from those of `target` are written, and rows with other keys are removed.
    """
    from runnel.connect.jdbc.row_reader import RowQuery, read_rows

    origin = inspection.origin
    conditions = (
        database.split_conditions(inspection.relation, origin, inspection.columns) if origin.partitions > 1 else []
    )
    total, is_unique = database.estimate_rows(origin), has_unique_key(database, inspection)
    with database.run_alongside(lambda: inspection.count_and_checksum(database)) as wait_for_checksum:
        query = RowQuery(inspection.columns, inspection.relation, conditions or ["1 = 1"], inspection.name)
        read_result = read_rows(database, query, folder, report_progress, total)
        if not is_unique:
            check_key_is_unique(inspection, read_result.parts)
    count_and_checksum = wait_for_checksum()
    state = {"declared": inspection.declaration_hash, "rows": list(count_and_checksum)}
    identity, bad = _identity(inspection, *count_and_checksum), check_bad_rows(inspection, read_result.bad)
    path = folder / "differing.parquet"
    if inspection.key and target is not None and target.write_differing_rows(read_result.parts, path):
        key = tuple(column.name for column in inspection.key)
        parts, is_all = (FetchedFile(path, inspection.name, "parquet"),), origin.removed == "delete"
        present = tuple(part.path for part in read_result.parts) if is_all else ()
        return FetchedRows(
            parts, state, identity, "upsert", key, present_keys=present, is_complete=is_all, bad_rows=bad
        )
    return FetchedRows(read_result.parts, state, identity, "replace", bad_rows=bad)


def _identity(inspection: TableInspection, count: int, checksum: str) -> str:
    return f"jdbc:{inspection.declaration_hash}:{count}:{checksum}"
