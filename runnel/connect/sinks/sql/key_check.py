"""Check that the key of a sink identifies each row, before anything is written."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import Mistake
from runnel.lake.scan.duckdb_types import quote_identifier

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class KeyCheck:
    """The key of a sink, with the names that an error has."""

    key: tuple[str, ...]
    table: str
    at: str

    def raise_if_ambiguous(self, connection: "duckdb.DuckDBPyConnection", added_view: str) -> None:
        """Raise if two added rows have the same key, or a key has a null."""
        names = ", ".join(map(quote_identifier, self.key))
        null_condition = " OR ".join(f"{quote_identifier(name)} IS NULL" for name in self.key)
        rows = connection.execute(
            f"SELECT {names}, count(*) FROM {added_view} GROUP BY "
            f"{names} HAVING count(*) > 1 OR {null_condition} LIMIT 1"
        ).fetchall()
        for row in rows:
            key_text = ", ".join(f"{name} = {value}" for name, value in zip(self.key, row, strict=False))
            reason = "lacks a value" if None in row else "belongs to several rows"
            what = f"the key of the sink of `{self.table}` {reason}: {key_text}"
            fix = "name columns whose values identify a row: key=[...]"
            raise Mistake("SINK_KEY_VALUES", what, at=self.at, fix=fix)
