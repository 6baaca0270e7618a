"""Write the rows of a group of files of a file source into shared data files, which say who owns each row.

Rows stay in the order of their files, not in the table's order: rows of a source file are adjacent, so that footers are
small and the rows of one source file are in as few data files as possible. A group is a work unit, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.lake.iceberg.data_file_owners import RowRun
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.owners.row_runs import find_run_numbers, list_runs, load_footers
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.lake.scan.scan_sql import FILE_COLUMN, POSITION_COLUMN, rows_sql
from runnel.lake.upkeep.compact.file_selection import FileGroup
from runnel.lake.upkeep.compact.group_rewriter import PartitionWriter, check_row_count, choose_batch_rows
from runnel.lake.warehouse_files import WarehouseFiles


@dataclass(frozen=True)
class OwnedGroupRewriter:
    """Rewrites groups of files of one version of a file source's table, or of its quarantine table; can be pickled.

    `metadata` needs no snapshots: the groups name the files.
    """

    files: WarehouseFiles
    metadata: TableMetadata
    target_bytes: int

    def __call__(self, group: FileGroup) -> list[DataFile]:
        """Rewrite a group and return the new files; raise if rows are missing."""
        sql = rows_sql(self.files, self.metadata, [*group.data, *group.deletes], with_positions=True)
        if group.deletes:  # DuckDB keeps the order of files unless it joins them with deletes
            sql = f"SELECT * FROM ({sql}) ORDER BY {quote_identifier(FILE_COLUMN)}, {quote_identifier(POSITION_COLUMN)}"
        writer = PartitionWriter(self.files, self.metadata, group.target_partition, self.target_bytes, is_shared=True)
        load_footers(self.files, group.data)
        runs_by_file = {normalize_location(entry.path): list_runs(self.files, entry) for entry in group.data}
        with connect_duckdb() as connection:
            for batch in connection.sql(sql).to_arrow_reader(choose_batch_rows(group)):
                writer.write(batch, _find_runs(batch, runs_by_file))
        new_files = writer.close()
        check_row_count(group, writer, new_files)
        return new_files


def _find_runs(batch: pa.RecordBatch, runs_by_file: Mapping[str, tuple[RowRun, ...]]) -> list[RowRun]:
    """Return the runs that the rows of a batch belong to, in their order."""
    runs: list[RowRun] = []
    positions: np.ndarray[Any, Any] = batch.column(POSITION_COLUMN).to_numpy(zero_copy_only=False)
    segments = pc.call_function("run_end_encode", [batch.column(FILE_COLUMN)])
    start = 0
    for end, file in zip(segments.run_ends.to_pylist(), segments.values.to_pylist(), strict=True):
        file_runs = runs_by_file[file]
        numbers = find_run_numbers(file_runs, positions[start:end])
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        counts = np.diff(starts, append=len(numbers))
        run_starts = np.cumsum([0, *(run.rows for run in file_runs)])
        for number, segment_start, count in zip(numbers[starts], starts, counts, strict=True):
            segment = positions[start + segment_start : start + segment_start + count]
            runs.append(_cut_run(file_runs[number], segment - run_starts[number]))
        start = end
    return runs


def _cut_run(run: RowRun, offsets: "np.ndarray[Any, Any]") -> RowRun:
    """Return the rows at some offsets of a run; their numbers are no longer known if they don't follow each other."""
    is_contiguous = run.first is not None and bool(np.all(np.diff(offsets) == 1))
    first = run.first + int(offsets[0]) if is_contiguous and run.first is not None else None
    return RowRun(run.owner, run.piece, len(offsets), first)
