"""What the paths of registered files say: the values of Hive-style folders, read by the rules for text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runnel.connect.files.file_patterns import File
from runnel.connect.files.format_reader import Incoming, Rejected
from runnel.connect.files.parquet import Footer
from runnel.connect.load.column_matching import Choice
from runnel.lake.scan.duckdb_types import literal

if TYPE_CHECKING:
    import duckdb


class PathReader:
    """What the paths of files say, one row per file; stands in for reading rows, which registering never does."""

    must_check = True

    def __init__(self, columns: Sequence[Incoming], footers: Sequence[Footer]) -> None:
        self.columns = tuple(columns)
        self._footers = footers

    def rows(self, file: File | None = None) -> str:
        """Return a SELECT of the values in paths."""
        found = [footer for footer in self._footers if file in (None, footer.file)]
        values = ", ".join(
            "("
            + ", ".join(
                [
                    *(_text(each.path_text(column.name)) for column in self.columns),
                    literal(each.file.path),
                ]
            )
            + ")"
            for each in found
        )
        names = ", ".join([*(column.sql for column in self.columns), "file"])
        return f"SELECT *, CAST(NULL AS VARCHAR) AS broken FROM (VALUES {values}) AS paths({names})"

    def rejected(self, most: int | None = None) -> Rejected:
        """Return nothing: paths can be read."""
        return Rejected()

    def places(self, file: File, rows: Sequence[int]) -> dict[int, str]:
        """Return where a value stands: in the path."""
        return dict.fromkeys(rows, "path")


def path_values(
    con: "duckdb.DuckDBPyConnection", reader: PathReader, choices: Sequence[Choice]
) -> dict[str, dict[str, Any]]:
    """Return what each file's path says, by file and by the table's column."""
    texts = [choice for choice in choices if choice.incoming.kind is None]
    if not texts:
        return {}
    values = ", ".join(choice.tries[0].value for choice in texts)
    rows = con.execute(f"SELECT file, {values} FROM ({reader.rows()})").fetchall()
    return {path: dict(zip([choice.name for choice in texts], found, strict=True)) for path, *found in rows}


def _text(value: str | None) -> str:
    return "CAST(NULL AS VARCHAR)" if value is None else literal(value)
