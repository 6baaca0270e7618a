"""Read a table or a query with a watermark: only rows from the greatest value of the previous read on.

With a key, rows up to `overlap` before that value are read again, and deleted rows are removed. Without a key rows are
only appended.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows
from runnel.connect.jdbc.bad_rows import check_bad_rows, has_unique_key
from runnel.connect.jdbc.database import SourceDatabase
from runnel.connect.jdbc.null_watermark_rows import NullWatermarkRows, find_null_watermark_rows
from runnel.connect.jdbc.row_files import RowFiles
from runnel.connect.jdbc.table_inspection import TableInspection
from runnel.errors import RunnelError, plural

if TYPE_CHECKING:
    from runnel.connect.jdbc.row_reader import ReadResult


@dataclass(frozen=True)
class WatermarkStats:
    """The number of rows with a watermark, how many of them are after the previous one, and the greatest value now.

    `has_fallen`: the greatest value is less than the previous one, because rows were deleted or restored. `null_rows`
    have no watermark. `rows` is None if they were not counted.
    """

    rows: int | None
    new_rows: int
    greatest: str | None
    has_fallen: bool
    null_rows: int = 0


def find_changes(
    database: SourceDatabase, inspection: TableInspection, previous: FeedState | None, *, is_first: bool
) -> FeedChanges:
    """Return whether there are rows after the watermark, other rows in the overlap, or fewer rows than before."""
    uses_index = _can_use_index(database, inspection, previous)
    stats = (
        _read_stats_by_index(database, inspection, previous)
        if uses_index
        else _read_stats(database, inspection, previous)
    )
    if uses_index and not stats.new_rows and _needs_row_count(inspection):
        stats = _read_stats(database, inspection, previous)
    null_watermarks = find_null_watermark_rows(database, inspection, previous, stats.null_rows)
    if previous is None or previous["watermark"] is None:
        if previous is not None and not stats.rows and not null_watermarks.needs_fetch:
            return FeedChanges(f"{inspection.name} has no rows", is_empty=True)
        reason = (
            "reads all rows of"
            if is_first or previous
            else "its declaration or columns changed: reads all rows again of"
        )
        return FeedChanges(f"{reason} {inspection.name}", rows=stats.rows)
    if stats.new_rows:
        differs = True
    elif inspection.key:
        count_differs = _needs_row_count(inspection) and stats.rows != previous["rows"]
        differs = (
            count_differs or stats.has_fallen or _window_checksum(database, inspection, previous) != previous["window"]
        )
    else:
        differs = bool(_count_late_rows(stats, previous) and inspection.source.on_bad == "stop")
    if not (differs or null_watermarks.needs_fetch):
        return FeedChanges(f"{inspection.name} has nothing after {previous['watermark']}", is_empty=True)
    return FeedChanges(_describe_changes(inspection, stats, previous, null_watermarks), rows=stats.new_rows)


def fetch(
    database: SourceDatabase,
    inspection: TableInspection,
    previous: FeedState | None,
    files: RowFiles,
) -> FetchedRows:
    """Read new rows, and all keys if the database has fewer rows than the table will have."""
    uses_index = _can_use_index(database, inspection, previous)
    stats = (
        _read_stats_by_index(database, inspection, previous)
        if uses_index
        else _read_stats(database, inspection, previous)
    )
    null_watermarks = find_null_watermark_rows(database, inspection, previous, stats.null_rows)
    null_watermarks.refuse_if_stop()
    is_initial_load, is_unique = is_whole_read(previous), has_unique_key(database, inspection)
    key_names = tuple(column.name for column in inspection.key)
    with database.run_alongside(lambda: _add_row_count(database, inspection, stats)) as wait_for_stats:
        read_result = _read_rows(database, inspection, previous if not is_initial_load else None, stats, files)
        if not is_unique:
            files.check_key(inspection, read_result)
        is_mirror = bool(key_names) and not is_initial_load and _needs_row_count(inspection)
        target = files.target if is_mirror else None
        expected_rows = target.count_rows_after(read_result.parts, key_names) if target is not None else None
    stats = wait_for_stats()
    if not is_initial_load and not inspection.key:
        _refuse_late_rows(inspection, stats, previous)
    present = (_read_keys(database, inspection, files),) if is_mirror and expected_rows != stats.rows else ()
    state = _build_state(database, inspection, stats, previous, null_watermarks)
    mode: Any = "replace" if is_initial_load else "upsert" if key_names else "append"
    identity = hashlib.sha256(json.dumps([previous, state], sort_keys=True).encode()).hexdigest()
    bad = check_bad_rows(inspection, (*read_result.bad, *null_watermarks.read_bad_rows(files.folder)))
    return FetchedRows(
        read_result.parts,
        state,
        f"jdbc:{identity}",
        mode,
        key_names,
        present_keys=present,
        bad_rows=bad,
        shared_parts=read_result.shared_parts,
    )


def is_whole_read(previous: FeedState | None) -> bool:
    """Tell whether all rows are read, because none were read before, or none had a watermark."""
    return previous is None or previous["watermark"] is None


def _read_rows(
    database: SourceDatabase,
    inspection: TableInspection,
    previous: FeedState | None,
    stats: WatermarkStats,
    files: RowFiles,
) -> "ReadResult":
    from runnel.connect.jdbc.row_reader import RowQuery

    watermark_column = inspection.watermark_column
    assert watermark_column is not None
    if previous is None:
        is_split = inspection.origin.partitions > 1
        conditions = (
            database.split_conditions(inspection.relation, inspection.origin, inspection.columns) if is_split else []
        )
        conditions = [f"({condition}) AND {watermark_column.raw} IS NOT NULL" for condition in conditions or ["1 = 1"]]
        total = stats.rows
    else:
        lower_bound = _lower_bound_sql(database, inspection, previous, stats)
        conditions, total = [f"{watermark_column.raw} {'>=' if inspection.key else '>'} {lower_bound}"], stats.new_rows
    query = RowQuery(inspection.columns, inspection.relation, conditions, inspection.name)
    return files.read(database, query, total)


def _lower_bound_sql(
    database: SourceDatabase, inspection: TableInspection, previous: FeedState, stats: WatermarkStats
) -> str:
    """Return the SQL of the watermark from which rows are read."""
    assert inspection.watermark_column is not None
    last = stats.greatest if stats.has_fallen and stats.greatest is not None else previous["watermark"]
    if inspection.key and inspection.origin.overlap is not None:
        return database.earlier_sql(last, inspection.watermark_column, inspection.origin.overlap)
    return database.literal_sql(last, inspection.watermark_column)


def _needs_row_count(inspection: TableInspection) -> bool:
    """Tell whether rows must be counted: to detect deleted rows or, in a table only appended to, late rows."""
    return inspection.origin.removed == "delete" or not inspection.key


def _can_use_index(database: SourceDatabase, inspection: TableInspection, previous: FeedState | None) -> bool:
    """Tell whether new rows are found by an index, without a scan of all rows."""
    assert inspection.watermark_column is not None
    has_watermark = previous is not None and previous["watermark"] is not None
    return has_watermark and database.is_indexed(inspection.origin, inspection.watermark_column.name)


def _read_stats_by_index(
    database: SourceDatabase, inspection: TableInspection, previous: FeedState | None
) -> WatermarkStats:
    """Return what an index of the watermark tells: everything but the number of rows."""
    assert inspection.watermark_column is not None and previous is not None
    raw, relation = inspection.watermark_column.raw, inspection.relation
    last = database.literal_sql(previous["watermark"], inspection.watermark_column)
    new_rows = database.fetch_row(f"SELECT count(*) FROM {relation} WHERE {raw} > {last}")[0]
    fell_sql = f"CASE WHEN max({raw}) < {last} THEN 1 ELSE 0 END"
    greatest, is_less = database.fetch_row(f"SELECT {database.text_sql(f'max({raw})')}, {fell_sql} FROM {relation}")
    null_rows = database.fetch_row(f"SELECT count(*) FROM {relation} WHERE {raw} IS NULL")[0]
    return WatermarkStats(None, int(new_rows), greatest, bool(is_less) or greatest is None, int(null_rows))


def _add_row_count(database: SourceDatabase, inspection: TableInspection, stats: WatermarkStats) -> WatermarkStats:
    """Return the same stats with the number of rows, if that is needed."""
    if stats.rows is not None or not _needs_row_count(inspection):
        return stats
    rows = int(database.fetch_row(f"SELECT count(*) FROM {inspection.relation}")[0])
    return replace(stats, rows=rows - stats.null_rows)


def _read_stats(database: SourceDatabase, inspection: TableInspection, previous: FeedState | None) -> WatermarkStats:
    watermark_column = inspection.watermark_column
    assert watermark_column is not None
    last = previous["watermark"] if previous is not None else None
    new_rows_sql, fell_sql = "count(*)", "0"
    if last is not None:
        literal = database.literal_sql(last, watermark_column)
        new_rows_sql = f"sum(CASE WHEN {watermark_column.raw} > {literal} THEN 1 ELSE 0 END)"
        fell_sql = f"CASE WHEN max({watermark_column.raw}) < {literal} THEN 1 ELSE 0 END"
    row = database.fetch_row(
        f"SELECT count({watermark_column.raw}), {new_rows_sql}, "
        f"{database.text_sql(f'max({watermark_column.raw})')}, {fell_sql}, count(*) FROM {inspection.relation}"
    )
    rows, count, greatest, is_less, total = row
    has_fallen = bool(is_less) or (last is not None and not rows)
    return WatermarkStats(int(rows), int(count or 0), greatest, has_fallen, int(total) - int(rows))


def _window_checksum(database: SourceDatabase, inspection: TableInspection, previous: FeedState) -> list[Any]:
    """Return the count and checksum of the rows from a state's watermark less the overlap on."""
    assert inspection.watermark_column is not None
    stats = WatermarkStats(0, 0, None, has_fallen=False)
    return list(
        inspection.count_and_checksum(
            database, f"{inspection.watermark_column.raw} >= {_lower_bound_sql(database, inspection, previous, stats)}"
        )
    )


def _build_state(
    database: SourceDatabase,
    inspection: TableInspection,
    stats: WatermarkStats,
    previous: FeedState | None,
    null_watermarks: NullWatermarkRows,
) -> dict[str, Any]:
    last = stats.greatest
    if last is None and previous is not None and not inspection.key:
        last = previous["watermark"]  # without a key deleted rows stay in the table, and the next rows come after them
    state = {"declared": inspection.declaration_hash, "watermark": last, "rows": stats.rows, **null_watermarks.state}
    window = _window_checksum(database, inspection, state) if inspection.key and last is not None else []
    return {**state, "window": window}


def _read_keys(database: SourceDatabase, inspection: TableInspection, files: RowFiles) -> Path:
    """Write all keys of the database into a file and return its path."""
    from runnel.connect.jdbc.row_reader import RowQuery, read_rows

    keys_folder = files.folder / "keys"
    keys_folder.mkdir()
    query = RowQuery(inspection.key, inspection.relation, ["1 = 1"], inspection.name)
    read_rows(database, query, keys_folder, files.report_progress)
    return keys_folder / "rows.parquet"


def _count_late_rows(stats: WatermarkStats, previous: FeedState) -> int:
    """Return how many rows were added at or before the watermark since it was reached, as far as the counts tell."""
    return max((stats.rows or 0) - stats.new_rows - int(previous["rows"] or 0), 0)


def _refuse_late_rows(inspection: TableInspection, stats: WatermarkStats, previous: FeedState | None) -> None:
    late = _count_late_rows(stats, previous) if previous is not None else 0
    if previous is None or not late or inspection.source.on_bad != "stop":
        return
    what = f"{plural(late, 'row')} of {inspection.name} came late: not after {previous['watermark']}, "
    what += "up to where it was read before, so they were not read"
    fix = 'declare key= and overlap="10 minutes" so that late rows are found, or leave them out with on_bad="drop"'
    raise RunnelError("SOURCE_LATE_ROWS", what, at=str(inspection.source.place), fix=fix)


def _describe_changes(
    inspection: TableInspection, stats: WatermarkStats, previous: FeedState, null_watermarks: NullWatermarkRows
) -> str:
    phrases = []
    if stats.new_rows:
        phrases.append(f"{plural(stats.new_rows, 'new or changed row')} of {inspection.name}")
    elif null_watermarks.needs_fetch:
        phrases.append(f"{null_watermarks.count:,} rows of {inspection.name} without a watermark")
    elif (stats.rows or 0) < (previous["rows"] or 0):
        phrases.append(f"rows of {inspection.name} are gone")
    else:
        phrases.append(f"rows of {inspection.name} came late")
    if null_watermarks.count and inspection.source.on_bad == "drop":
        phrases.append(f"{null_watermarks.count:,} without `{inspection.origin.watermark}` are left out")
    return "; ".join(phrases)
