"""What to do with rows of a database that can't be taken in, by the policy of their source."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.connect.feed.protocol import Part
from runnel.connect.jdbc.database import Database
from runnel.connect.jdbc.table_inspection import Look
from runnel.errors import RunnelError
from runnel.names import shown

if TYPE_CHECKING:
    from runnel.connect.load.quarantine import Aside

_MOST_SHOWN = 5


def judged(looked: Look, bad: "Sequence[Aside]") -> "tuple[Aside, ...]":
    """Return bad rows, or raise where the source says that they stop it."""
    if not bad or looked.source.on_bad != "stop":
        return tuple(bad)
    count = len(bad)
    head = f"{count:,} row{'s' if count != 1 else ''} of {looked.name} can't be read; nothing was taken in"
    lines = [f"    {aside.reason}, in the row {shown(aside.raw, 120)}" for aside in bad[:_MOST_SHOWN]]
    more = [f"    ... and {count - _MOST_SHOWN:,} more"] if count > _MOST_SHOWN else []
    fix = 'correct them in the database, or set them aside with on_bad="quarantine"'
    raise RunnelError("SOURCE_BAD_ROWS", "\n".join([head, *lines, *more]), at=str(looked.source.place), fix=fix)


def is_once(database: Database, looked: Look) -> bool:
    """Tell whether each key can only be there once, as the database itself sees to."""
    return not looked.key or database.is_unique(looked.origin, [column.name for column in looked.key])


def once(looked: Look, parts: Sequence[Part]) -> None:
    """Raise where a key is there twice: then it does not identify a row."""
    from runnel.lake.scan.duckdb_connection import connect
    from runnel.lake.scan.duckdb_types import exact_path, quoted

    names = [column.name for column in looked.key]
    files = ", ".join(exact_path(str(part.path)) for part in parts)
    columns = ", ".join(quoted(name) for name in names)
    with connect() as con:
        found = con.execute(
            f"SELECT {columns}, count(*) FROM read_parquet([{files}]) GROUP BY {columns} HAVING count(*) > 1 LIMIT 1"
        ).fetchall()
    if found:
        *values, count = found[0]
        said = ", ".join(f"{name} = {shown(value)}" for name, value in zip(names, values, strict=True))
        what = f"the key of {looked.name} does not identify its rows: {count:,} have {said}"
        fix = "name all the columns that identify a row in key=, or leave key= out"
        raise RunnelError("SOURCE_KEY_TWICE", what, at=str(looked.source.place), fix=fix)
