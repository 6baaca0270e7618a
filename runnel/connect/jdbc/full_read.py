"""Read a table or a query without a watermark in full, if the count or checksum of its rows has changed."""

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows
from runnel.connect.jdbc.bad_rows import check_bad_rows, has_unique_key
from runnel.connect.jdbc.database import SourceDatabase
from runnel.connect.jdbc.row_files import RowFiles
from runnel.connect.jdbc.table_inspection import TableInspection
from runnel.errors import plural


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


def fetch(database: SourceDatabase, inspection: TableInspection, files: RowFiles) -> FetchedRows:
    """Read all rows, and compute the checksum at the same time if the database can do both.

    With a key, only rows that differ from those of the table are written, and rows with other keys are removed.
    """
    from runnel.connect.jdbc.row_reader import RowQuery

    origin = inspection.origin
    conditions = (
        database.split_conditions(inspection.relation, origin, inspection.columns) if origin.partitions > 1 else []
    )
    total, is_unique = database.estimate_rows(origin), has_unique_key(database, inspection)
    with database.run_alongside(lambda: inspection.count_and_checksum(database)) as wait_for_checksum:
        query = RowQuery(inspection.columns, inspection.relation, conditions or ["1 = 1"], inspection.name)
        read_result = files.read(database, query, total)
        if not is_unique:
            files.check_key(inspection, read_result)
    count_and_checksum = wait_for_checksum()
    state = {"declared": inspection.declaration_hash, "rows": list(count_and_checksum)}
    identity, bad = _identity(inspection, *count_and_checksum), check_bad_rows(inspection, read_result.bad)
    differing = files.write_differing_rows(inspection, read_result) if inspection.key else None
    if differing is None:
        parts, shared_parts = read_result.parts, read_result.shared_parts
        return FetchedRows(parts, state, identity, "replace", bad_rows=bad, shared_parts=shared_parts)
    is_all = origin.removed == "delete"
    return FetchedRows(
        differing.rows.parts,
        state,
        identity,
        "upsert",
        tuple(column.name for column in inspection.key),
        present_keys=differing.key_files if is_all else (),
        is_complete=is_all,
        bad_rows=bad,
        shared_parts=differing.rows.shared_parts,
    )


def _identity(inspection: TableInspection, count: int, checksum: str) -> str:
    return f"jdbc:{inspection.declaration_hash}:{count}:{checksum}"
