"""Recognise a column that exists nowhere, so that a typing mistake is told at once and Spark need not be started."""

import re
from collections.abc import Iterator, Mapping

from sqlglot import exp

from runnel.errors import Mistake, nearest
from runnel.names import shown
from runnel.query.data_types import DataType

_UNKNOWN = re.compile(r"the column `(.+)` is not known\Z")
# Names that generators and VALUES give to columns.
_GIVEN = re.compile(r"col\d*|pos|key|value\Z")


def unknown_column(reason: str, tree: exp.Expr, schemas: Mapping[str, Mapping[str, DataType]]) -> Mistake | None:
    """Return the mistake behind an untranslatable query if a name in it means nothing anywhere, else None."""
    found = _UNKNOWN.match(reason)
    if found is None:
        return None
    *_, name = found[1].split(".")
    known = {column.lower() for columns in schemas.values() for column in columns}
    known |= {inner.lower() for columns in schemas.values() for kind in columns.values() for inner in _fields(kind)}
    if name.lower() in known | set(_aliases(tree)) or _GIVEN.match(name.lower()):
        return None  # it exists, but not there; Spark says it best
    return mistake(name, schemas)


def mistake(name: str, schemas: Mapping[str, Mapping[str, DataType]]) -> Mistake:
    """Return the error for a column that no table of the query has, with the nearest one."""
    owners = {column: table for table, columns in schemas.items() for column in columns}
    close = nearest(name.lower(), owners)
    known = f"; close: `{close}` of `{owners[close]}`" if close else ""
    tables = " or ".join(f"`{table}`" for table in schemas)
    what = f"there is no column {shown(name)}" + (f" in {tables}" if tables else "") + known
    fix = f"write {close}" if close else "`runnel table NAME` shows the columns of a table"
    return Mistake("SQL_COLUMN", what, fix=fix)


def _fields(kind: DataType) -> Iterator[str]:
    yield from kind.names
    for child in kind.children:
        yield from _fields(child)


def _aliases(tree: exp.Expr) -> Iterator[str]:
    for node in tree.walk():
        if isinstance(node, (exp.Alias, exp.TableAlias, exp.Aliases, exp.Lambda, exp.PivotAlias)):
            for identifier in node.find_all(exp.Identifier):
                yield identifier.name.lower()
        elif isinstance(node, exp.Anonymous):
            yield from (str(part.this).lower() for part in node.expressions if isinstance(part, exp.Literal))
