"""A table or a query without a watermark: a count and a checksum of all rows say whether anything changed."""

from pathlib import Path

from runnel.connect.feed.protocol import Fetched, Held, News, Part, Progress, State
from runnel.connect.jdbc.bad_rows import is_once, judged, once
from runnel.connect.jdbc.database import Database
from runnel.connect.jdbc.table_inspection import Look


def news(database: Database, looked: Look, known: State | None, *, is_first: bool) -> News:
    """Return whether rows differ from those that led to the state. At first nothing has to be asked for that."""
    if known is None:
        why = "reads all rows of" if is_first else "its declaration or columns changed: reads all rows again of"
        return News(f"{why} {looked.name}", rows=database.estimate(looked.origin), replaces=True)
    count, checksum = looked.counted(database)
    if [count, checksum] == list(known["rows"]):
        return News(f"{looked.name} is unchanged", is_empty=True)
    told = f"{looked.name} changed: reads its {count:,} row{'s' if count != 1 else ''}"
    return News(told, rows=count, identity=_identity(looked, count, checksum), replaces=True)


def fetch(database: Database, looked: Look, folder: Path, tell: Progress, held: Held | None) -> Fetched:
    """Read everything, and meanwhile let the database compute the checksum where it can do both at once.

    With a key, only rows that differ from those of the table `held` are written, and rows of other keys go.
    """
    from runnel.connect.jdbc.row_reader import read

    origin = looked.origin
    conditions = database.splits(looked.relation, origin, looked.columns) if origin.partitions > 1 else []
    total, is_unique = database.estimate(origin), is_once(database, looked)
    with database.aside(lambda: looked.counted(database)) as counting:
        found = read(
            database, looked.columns, looked.relation, conditions or ["1 = 1"], folder, looked.name, tell, total
        )
        if not is_unique:
            once(looked, found.parts)
    counted = counting()
    state = {"declared": looked.declared, "rows": list(counted)}
    identity, bad = _identity(looked, *counted), judged(looked, found.bad)
    path = folder / "differing.parquet"
    if looked.key and held is not None and held.differing(found.parts, path):
        key = tuple(column.name for column in looked.key)
        parts, is_all = (Part(path, looked.name, "parquet"),), origin.removed == "delete"
        present = tuple(part.path for part in found.parts) if is_all else ()
        return Fetched(parts, state, identity, "upsert", key, present=present, is_all=is_all, bad=bad)
    return Fetched(found.parts, state, identity, "replace", bad=bad)


def _identity(looked: Look, count: int, checksum: str) -> str:
    return f"jdbc:{looked.declared}:{count}:{checksum}"
