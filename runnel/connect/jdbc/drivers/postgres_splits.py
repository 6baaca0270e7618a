"""Split the rows of a PostgreSQL table between connections: by pages, or by ranges of a column."""

from collections.abc import Callable
from itertools import pairwise

from runnel.connect.jdbc.database import ALIAS, Row

FetchRows = Callable[..., list[Row]]
_AFTER_LAST_PAGE = 4294967295  # no table has a page of this number


def split_by_pages(fetch_rows: FetchRows, table: str, count: int) -> list[str]:
    """Return ranges of pages of an ordinary table, which are read in order without an index; else nothing."""
    pages_sql = "pg_relation_size(oid) / current_setting('block_size')::int"
    table_info = fetch_rows(f"SELECT relkind::text, {pages_sql} FROM pg_class WHERE oid = to_regclass(%s)", table)
    if not table_info or table_info[0][0] not in ("r", "m") or table_info[0][1] < count:
        return []
    starts = [table_info[0][1] * number // count for number in range(count)] + [_AFTER_LAST_PAGE]
    return [
        f"{ALIAS}.ctid >= '({first},0)'::tid AND {ALIAS}.ctid < '({after},0)'::tid" for first, after in pairwise(starts)
    ]


def split_by_value(
    fetch_rows: FetchRows, relation: str, column: str, kind: str, count: int, *, is_number: bool
) -> list[str]:
    """Return ranges of equal width of a number or a time; rows without a value are in the first range."""
    low, high = (f"{aggregate}({column})" + ("::numeric" if is_number else "") for aggregate in ("min", "max"))
    rounding = "floor" if is_number else ""
    bounds = ", ".join(f"{rounding}({low} + ({high} - {low}) * {number} / {count})::text" for number in range(1, count))
    (bound_texts,) = fetch_rows(f"SELECT {bounds} FROM {relation}")
    bound_literals = [f"'{text}'::{kind}" for text in dict.fromkeys(bound_texts) if text is not None]
    if not bound_literals:
        return []
    middle = [f"{column} >= {first} AND {column} < {after}" for first, after in pairwise(bound_literals)]
    return [f"({column} < {bound_literals[0]} OR {column} IS NULL)", *middle, f"{column} >= {bound_literals[-1]}"]
