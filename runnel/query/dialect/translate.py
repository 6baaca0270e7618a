"""Translate a checked query from Spark SQL to DuckDB SQL, or say why DuckDB can't give the same answer."""

from collections.abc import Mapping
from dataclasses import dataclass

from runnel.declare.model.column_types import SparkType
from runnel.query.allow_list import ParsedQuery
from runnel.query.data_types import parse_spark_type
from runnel.query.dialect.select import QueryTranslator
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable


@dataclass(frozen=True)
class ResultColumn:
    """A column of an answer, named and typed as Spark would."""

    name: str
    type: SparkType


@dataclass(frozen=True)
class DuckdbQuery:
    """DuckDB SQL that gives Spark's answer.

    It expects `SET TimeZone = 'UTC'`, and each table under its given name with the columns of its schema in the types
    that `format_duckdb_type` names. If two columns of the answer share a name, all are named by position. If DuckDB
    fails, Spark has to answer the query. `ordered` says whether the order of the rows is part of the answer.
    """

    sql: str
    columns: tuple[ResultColumn, ...]
    ordered: bool


@dataclass(frozen=True)
class UntranslatableQuery:
    """The reason why only Spark can answer."""

    reason: str


def translate(
    parsed: ParsedQuery,
    schemas: Mapping[str, Mapping[str, SparkType | str]],
    tables: Mapping[str, str] | None = None,
) -> DuckdbQuery | UntranslatableQuery:
    """Return DuckDB SQL for a query over tables with these schemas.

    `tables` maps `layer.name` to a DuckDB identifier, already quoted if necessary; other tables are called by their
    quoted full name.

    >>> from runnel.query.allow_list import parse_allowed_query
    >>> translate(parse_allowed_query("select a from x.t"), {"x.t": {"a": "int"}}).sql
    'SELECT "t1"."a" AS "a" FROM "x.t" AS "t1"'
    """
    typed_schemas = {
        table.lower(): {name: parse_spark_type(to) if isinstance(to, str) else to for name, to in columns.items()}
        for table, columns in schemas.items()
    }
    try:
        translated = QueryTranslator(typed_schemas, tables or {}).translate(parsed.tree, None, {}, final=True)
        columns = tuple(_to_result_column(value) for value in translated.columns)
    except Untranslatable as refused:
        return UntranslatableQuery(str(refused))
    except RecursionError:
        return UntranslatableQuery("the query is nested deeply")
    return DuckdbQuery(translated.sql, columns, translated.ordered)


def _to_result_column(value: TypedExpression) -> ResultColumn:
    if value.name is None:
        raise Untranslatable("a column whose name only Spark knows; give it an alias")
    if value.type.kind == "void":
        raise Untranslatable("a column without a type")
    if _has_interval(value.type):
        raise Untranslatable("a column of intervals")
    return ResultColumn(value.name, value.type)


def _has_interval(data_type: SparkType) -> bool:
    return data_type.kind in ("months", "days", "micros") or any(
        _has_interval(child.type) for child in data_type.children
    )
