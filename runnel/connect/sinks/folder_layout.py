"""Write rows into a folder with the layout of a sink: one file, or one in a folder for each partition."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.lake.scan.duckdb_types import quote_identifier, quote_literal

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class FolderLayout:
    """The columns whose values name folders, the options of DuckDB's COPY, and the ending of files."""

    partition: tuple[str, ...]
    options: tuple[str, ...]
    extension: str

    def write(self, con: "duckdb.DuckDBPyConnection", rows: str, folder: Path, file_number: int = 0) -> None:
        """Write the rows of a SELECT into a new folder; with partitions it stays empty without rows."""
        folder.mkdir()
        if not self.partition:
            path = folder / f"part-{file_number}.{self.extension}"
            write_files(con, f"COPY ({rows}) TO {quote_literal(str(path))} ({', '.join(self.options)})")
        elif con.execute(f"SELECT 1 FROM ({rows}) LIMIT 1").fetchall():
            names = ", ".join(map(quote_identifier, self.partition))
            con.execute("SET partitioned_write_max_open_files = 10000")  # so that each partition is one file
            layout_options = [
                f"PARTITION_BY ({names})",
                "FILENAME_PATTERN 'part-{i}'",
                f"FILE_EXTENSION '{self.extension}'",
            ]
            write_files(
                con,
                f"COPY ({rows}) TO {quote_literal(str(folder))} "
                f"({', '.join([*self.options, *layout_options])}, OVERWRITE_OR_IGNORE)",
            )


def select_touched_sql(rows: str, partition: Sequence[str], touched: str) -> str:
    """Return a SELECT of the rows that belong to a partition which is listed in a table."""
    join_condition = " AND ".join(
        f"w.{quote_identifier(name)} IS NOT DISTINCT FROM t.{quote_identifier(name)}" for name in partition
    )
    return f"SELECT w.* FROM {rows} AS w WHERE EXISTS (SELECT 1 FROM {touched} AS t WHERE {join_condition})"


def write_files(con: "duckdb.DuckDBPyConnection", sql: str) -> None:
    """Let DuckDB write files."""
    import duckdb

    try:
        con.execute(sql)
    except duckdb.IOException as error:
        if "No files found" in str(error) or "Could not read" in str(error):
            raise  # the unreadable file is one of the lake
        raise OSError(None, str(error).splitlines()[0]) from error
