"""Read a condition over the columns of a row, in Spark SQL: which columns it names.

Pure. Parsing is left until a condition is more than a comparison or two: sqlglot takes a while to import.
"""

import re

from runnel.errors import Mistake
from runnel.names import shown

_PLAIN = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:=|==|<>|!=)\s*(?:'[^'\\]*'|\d+)\s*\Z")
_FIX = "write a condition over the columns of a row: op = 'D'"


def columns_in(text: str) -> tuple[str, ...]:
    """Return the columns that a condition names, each once; raise where it is none.

    >>> columns_in("op = 'D'"), columns_in("op in ('D', 'T') and not lower(kind) = 'x'")
    (('op',), ('op', 'kind'))
    """
    if plain := _PLAIN.match(text):
        return (plain[1],)
    return _parsed(text)


def query_of(text: str, table: str, alias: str) -> str:
    """Return a query whose one column is a condition over a table's rows."""
    return f"SELECT ({text}\n) AS {alias} FROM {table}"


def _parsed(text: str) -> tuple[str, ...]:
    from sqlglot import exp

    from runnel.declare.sql.task_sql import read

    try:
        tree = read(query_of(text, "ods.log", "found"))
    except Mistake as mistake:
        raise Mistake(mistake.code, f"{shown(text)} can't be read as SQL", fix=_FIX) from mistake
    parts = len(list(tree.find_all(exp.Query))), len(list(tree.find_all(exp.Table))), len(tree.expressions)
    if not isinstance(tree, exp.Select) or parts != (1, 1, 1) or tree.find(exp.AggFunc, exp.Window, exp.Star):
        raise Mistake("DECLARE_SQL", f"{shown(text)} is more than a condition over one row", fix=_FIX)
    return tuple(dict.fromkeys(column.parts[0].name for column in tree.find_all(exp.Column, bfs=False)))
