"""Translate a checked query from Spark SQL to DuckDB SQL, or say why that can't be done faithfully."""

from collections.abc import Mapping
from dataclasses import dataclass

from runnel.query.allow_list import Parsed
from runnel.query.data_types import DataType, spark_type
from runnel.query.dialect.select import Queries
from runnel.query.dialect.typed_expression import Refused, Value


@dataclass(frozen=True)
class Column:
    """A column of an answer, named and typed as Spark would."""

    name: str
    type: DataType


@dataclass(frozen=True)
class Translated:
    """DuckDB SQL that gives Spark's answer.

    It expects `SET TimeZone = 'UTC'`, and each table under its given name with the columns of its schema in the types
    that `DataType.duckdb` names. Columns of the answer are called by position in case two share a name. An error of
    DuckDB's means nothing: Spark has to be asked. `ordered` tells whether the order of the rows is part of the answer.
    """

    sql: str
    columns: tuple[Column, ...]
    ordered: bool


@dataclass(frozen=True)
class Unfaithful:
    """The reason why only Spark can answer."""

    reason: str


def translate(
    parsed: Parsed,
    schemas: Mapping[str, Mapping[str, DataType | str]],
    tables: Mapping[str, str] | None = None,
) -> Translated | Unfaithful:
    """Return DuckDB SQL for a query over tables with these schemas.

    `tables` maps `layer.name` to a DuckDB identifier, already quoted where it has to be; a table that is not in it is
    called by its quoted full name.

    >>> from runnel.query.allow_list import parse
    >>> translate(parse("select a from x.t"), {"x.t": {"a": "int"}}).sql
    'SELECT "t1"."a" AS "a" FROM "x.t" AS "t1"'
    """
    typed = {
        table.lower(): {name: spark_type(to) if isinstance(to, str) else to for name, to in columns.items()}
        for table, columns in schemas.items()
    }
    try:
        found = Queries(typed, tables or {}).query(parsed.tree, None, {}, final=True)
        columns = tuple(_column(value) for value in found.columns)
    except Refused as refused:
        return Unfaithful(str(refused))
    except RecursionError:
        return Unfaithful("the query is nested deeply")
    return Translated(found.sql, columns, found.ordered)


def _column(value: Value) -> Column:
    if value.name is None:
        raise Refused("a column whose name only Spark knows; give it an alias")
    if value.type.kind == "void":
        raise Refused("a column without a type")
    if _holds_interval(value.type):
        raise Refused("a column of intervals")
    return Column(value.name, value.type)


def _holds_interval(kind: DataType) -> bool:
    return kind.kind in ("months", "days", "micros") or any(map(_holds_interval, kind.children))
