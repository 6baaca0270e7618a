"""Find the columns that a Spark SQL condition over a row uses.

Pure. Simple comparisons are matched without a parser, because importing sqlglot is slow.
"""

import re

from runnel.errors import Mistake
from runnel.names import quote_value

_SIMPLE_COMPARISON = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:=|==|<>|!=)\s*(?:'[^'\\]*'|\d+)\s*\Z")
_FIX = "write a condition over the columns of a row: op = 'D'"


def find_condition_columns(text: str) -> tuple[str, ...]:
    """Return the columns that a condition names, each once; raise if it is not a condition.

    >>> find_condition_columns("op = 'D'"), find_condition_columns("op in ('D', 'T') and not lower(kind) = 'x'")
    (('op',), ('op', 'kind'))
    """
    if match := _SIMPLE_COMPARISON.match(text):
        return (match[1],)
    return _parse_columns(text)


def wrap_in_query(text: str, table: str, alias: str) -> str:
    """Return a query whose only column is the condition, evaluated on a table's rows."""
    return f"SELECT ({text}\n) AS {alias} FROM {table}"


def _parse_columns(text: str) -> tuple[str, ...]:
    from sqlglot import exp

    from runnel.declare.sql.task_sql import parse_query

    try:
        tree = parse_query(wrap_in_query(text, "ods.log", "found"))
    except Mistake as mistake:
        raise Mistake(mistake.code, f"{quote_value(text)} can't be read as SQL", fix=_FIX) from mistake
    counts = len(list(tree.find_all(exp.Query))), len(list(tree.find_all(exp.Table))), len(tree.expressions)
    if not isinstance(tree, exp.Select) or counts != (1, 1, 1) or tree.find(exp.AggFunc, exp.Window, exp.Star):
        raise Mistake("DECLARE_SQL", f"{quote_value(text)} is more than a condition over one row", fix=_FIX)
    return tuple(dict.fromkeys(column.parts[0].name for column in tree.find_all(exp.Column, bfs=False)))
