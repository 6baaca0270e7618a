"""Recognise a column that exists nowhere, so that a typo is reported at once, without starting Spark."""

import re
from collections.abc import Iterator, Mapping

from sqlglot import exp

from runnel.declare.model.column_types import SparkType
from runnel.errors import Mistake, find_nearest
from runnel.names import quote_value

_UNKNOWN_COLUMN = re.compile(r"the column `(.+)` is not known\Z")
# Names that generators, VALUES and grouping sets give to columns; and names of expressions without an alias, such as
# `sum(amount)` and `1`, which ORDER BY and GROUP BY may use.
_GENERATED_NAME = re.compile(r"(col\d*|pos|key|value|grouping__id)\Z|\d|.*\W", re.DOTALL)


def find_unknown_column(reason: str, tree: exp.Expr, schemas: Mapping[str, Mapping[str, SparkType]]) -> Mistake | None:
    """Return the error for an untranslatable query if the reason is a column that exists nowhere, else None."""
    match = _UNKNOWN_COLUMN.match(reason)
    if match is None:
        return None
    *_, name = match[1].split(".")
    existing_names = {column.lower() for columns in schemas.values() for column in columns}
    existing_names |= {
        nested_name.lower()
        for columns in schemas.values()
        for kind in columns.values()
        for nested_name in _iterate_field_names(kind)
    }
    if name.lower() in existing_names | set(_iterate_aliases(tree)) or _GENERATED_NAME.match(name.lower()):
        return None  # it exists, but not in this scope; Spark's message is the best
    return describe_missing_column(name, schemas)


def describe_missing_column(name: str, schemas: Mapping[str, Mapping[str, SparkType]]) -> Mistake:
    """Return the error for a column that no table of the query has, with the closest existing one."""
    owners = {column: table for table, columns in schemas.items() for column in columns}
    close = find_nearest(name.lower(), owners)
    hint = f"; close: `{close}` of `{owners[close]}`" if close else ""
    tables = " or ".join(f"`{table}`" for table in schemas)
    what = f"there is no column {quote_value(name)}" + (f" in {tables}" if tables else "") + hint
    fix = f"write {close}" if close else "`runnel table NAME` shows the columns of a table"
    return Mistake("SQL_COLUMN", what, fix=fix)


def _iterate_field_names(kind: SparkType) -> Iterator[str]:
    for child in kind.children:
        if kind.kind == "struct":
            yield child.name
        yield from _iterate_field_names(child.type)


def _iterate_aliases(tree: exp.Expr) -> Iterator[str]:
    for node in tree.walk():
        if isinstance(node, (exp.Alias, exp.TableAlias, exp.Aliases, exp.Lambda, exp.PivotAlias)):
            for identifier in node.find_all(exp.Identifier):
                yield identifier.name.lower()
        elif isinstance(node, exp.Anonymous):
            yield from (str(part.this).lower() for part in node.expressions if isinstance(part, exp.Literal))
