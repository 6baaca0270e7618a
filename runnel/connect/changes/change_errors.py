"""Turn DuckDB's errors while a change log is applied into errors that a user can act on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from runnel.declare.model.flow import Source
from runnel.errors import CorruptData, RunnelError
from runnel.lake.scan.duckdb_types import DuckdbScanError


@dataclass(frozen=True)
class ChangeErrors:
    """Names the table and the line of its declaration in errors; can be pickled."""

    table: str
    at: str

    @contextmanager
    def describe(self) -> Iterator[None]:
        """Raise RunnelErrors instead of DuckDB's."""
        import duckdb

        try:
            yield
        except DuckdbScanError as error:
            what = f"the changes of `{self.table}` can't be applied: {error.what}"
            raise RunnelError("CHANGES_UNREADABLE", what, at=self.at, fix="rewrite the log with Spark") from error
        except duckdb.OutOfMemoryException as error:
            what = f"there is not enough memory or disk space to apply the changes of `{self.table}`"
            raise RunnelError(
                "CHANGES_TOO_LARGE", what, at=self.at, fix="free some, or use a larger machine"
            ) from error
        except duckdb.IOException as error:
            what = f"a file of the lake can't be read: {str(error).splitlines()[0]}"
            fix = "run `runnel fsck` to see which commits need it"
            raise CorruptData("LAKE_FILE_UNREADABLE", what, fix=fix) from error
        except duckdb.Error as error:
            what = f"`delete_when` of `{self.table}` fails for a row of its log: {str(error).splitlines()[0]}"
            fix = "write it so that it works for every row"
            raise RunnelError("CHANGES_CONDITION", what, at=self.at, fix=fix) from error


def describe_errors_of(source: Source) -> ChangeErrors:
    """Return how errors about the changes of a source are described."""
    return ChangeErrors(str(source.table), str(source.place))
