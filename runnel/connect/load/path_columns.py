"""Read the values of Hive-style folders from the paths of registered files, by the rules for text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import FileColumn, RejectedRows
from runnel.connect.files.parquet import FileFooter
from runnel.connect.load.column_matching import ColumnChoice
from runnel.lake.scan.duckdb_types import quote_literal

if TYPE_CHECKING:
    import duckdb


class PathReader:
    """Reads the values in file paths, one row per file; registering files never reads their rows."""

    must_check = True

    def __init__(self, columns: Sequence[FileColumn], footers: Sequence[FileFooter]) -> None:
        self.columns = tuple(columns)
        self._footers = footers

    def build_select(self, file: LocalFile | None = None) -> str:
        """Return a SELECT of the values in paths."""
        footers = [footer for footer in self._footers if file in (None, footer.file)]
        values = ", ".join(
            "("
            + ", ".join(
                [
                    *(_text_sql(file_footer.find_path_text(column.name)) for column in self.columns),
                    quote_literal(file_footer.file.path),
                ]
            )
            + ")"
            for file_footer in footers
        )
        names = ", ".join([*(column.sql_name for column in self.columns), "file"])
        return f"SELECT *, CAST(NULL AS VARCHAR) AS broken FROM (VALUES {values}) AS paths({names})"

    def pop_rejected(self, _most: int | None = None) -> RejectedRows:
        """Return no rows: a path can always be read."""
        return RejectedRows()

    def locate_rows(self, _file: LocalFile, rows: Sequence[int]) -> dict[int, str]:
        """Return "path" for every row: the values come from the path."""
        return dict.fromkeys(rows, "path")


def read_path_values(
    con: "duckdb.DuckDBPyConnection", reader: PathReader, choices: Sequence[ColumnChoice]
) -> dict[str, dict[str, Any]]:
    """Return the values in each file's path, by file and by the table's column."""
    path_choices = [choice for choice in choices if choice.file_column.kind is None]
    if not path_choices:
        return {}
    values = ", ".join(choice.conversions[0].value for choice in path_choices)
    rows = con.execute(f"SELECT file, {values} FROM ({reader.build_select()})").fetchall()
    return {
        path: dict(zip([choice.name for choice in path_choices], row_values, strict=True)) for path, *row_values in rows
    }


def _text_sql(value: str | None) -> str:
    return "CAST(NULL AS VARCHAR)" if value is None else quote_literal(value)
