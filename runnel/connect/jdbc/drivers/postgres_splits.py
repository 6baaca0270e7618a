"""Share the rows of a table of PostgreSQL out among connections: by where they lie, or by ranges of a column."""

from collections.abc import Callable
from itertools import pairwise

from runnel.connect.jdbc.database import ALIAS, Row

Rows = Callable[..., list[Row]]
_LAST = 4294967295  # no table has a page of this number


def by_place(rows: Rows, table: str, count: int) -> list[str]:
    """Return ranges of pages of an ordinary table, which are read in order whatever its indexes; else nothing."""
    pages = "pg_relation_size(oid) / current_setting('block_size')::int"
    found = rows(f"SELECT relkind::text, {pages} FROM pg_class WHERE oid = to_regclass(%s)", table)
    if not found or found[0][0] not in ("r", "m") or found[0][1] < count:
        return []
    starts = [found[0][1] * number // count for number in range(count)] + [_LAST]
    return [
        f"{ALIAS}.ctid >= '({first},0)'::tid AND {ALIAS}.ctid < '({after},0)'::tid" for first, after in pairwise(starts)
    ]


def by_value(rows: Rows, relation: str, column: str, kind: str, count: int, *, is_number: bool) -> list[str]:
    """Return ranges of a number or a time, each as wide; rows without a value are with the first."""
    low, high = (f"{least}({column})" + ("::numeric" if is_number else "") for least in ("min", "max"))
    exact = "floor" if is_number else ""
    bounds = ", ".join(f"{exact}({low} + ({high} - {low}) * {number} / {count})::text" for number in range(1, count))
    (found,) = rows(f"SELECT {bounds} FROM {relation}")
    marks = [f"'{text}'::{kind}" for text in dict.fromkeys(found) if text is not None]
    if not marks:
        return []
    middle = [f"{column} >= {first} AND {column} < {after}" for first, after in pairwise(marks)]
    return [f"({column} < {marks[0]} OR {column} IS NULL)", *middle, f"{column} >= {marks[-1]}"]
