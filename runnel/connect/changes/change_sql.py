"""Build the DuckDB SQL that derives a table from its change log. Pure: texts in, texts out.

The result depends only on the set of the log's rows. Of rows with the same key and the same sequence value one counts:
a delete before others, else the greatest, compared column by column in the order of their names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.types import BinaryType, BooleanType, DoubleType, FloatType, IcebergType, NestedField

from runnel.declare.model.endpoints import VALIDITY_COLUMNS, Changes
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, did_you_mean
from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.names import quote_value

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

ROW_ALIAS = '"t1"'  # the alias of a log row in the delete condition
_DELETES, _RANK, _NEXT = (quote_identifier(internal_column(word)) for word in ("deletes", "rank", "next"))


@dataclass(frozen=True)
class ChangeRule:
    """How a log with these columns is applied. `delete_condition` is SQL over a row with the alias `ROW_ALIAS`."""

    columns: tuple[NestedField, ...]
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    scd: int
    delete_condition: str | None = None

    @property
    def key_columns_sql(self) -> str:
        """Return the key columns as a list in SQL."""
        return quote_columns(self.key)

    @property
    def is_applicable_sql(self) -> str:
        """Return the condition that the key and the sequence of a log row are not null."""
        return " AND ".join(f"{quote_identifier(name)} IS NOT NULL" for name in (*self.key, *self.sequence))

    @property
    def fields(self) -> tuple[NestedField, ...]:
        """Return the columns of the table, in order."""
        if self.scd == 1:
            return self.columns
        sequence_field = next(field for field in self.columns if field.name == self.sequence[0])
        docs = ("from when on the row held", "until when it held; null: it holds still")
        return (
            *self.columns,
            *(
                NestedField(0, name, sequence_field.field_type, doc=doc)
                for name, doc in zip(VALIDITY_COLUMNS, docs, strict=True)
            ),
        )

    def build_table_select(self, rows: str) -> str:
        """Return a SELECT of the table's rows, given a SELECT of all log rows of the keys in question."""
        is_delete = f"coalesce({self.delete_condition}, false)" if self.delete_condition else "false"
        rows_with_deletes = (
            f"SELECT *, {is_delete} AS {_DELETES} FROM ({rows}) AS {ROW_ALIAS} WHERE {self.is_applicable_sql}"
        )
        tie_order = [f"{_DELETES} DESC", *(f"{value} DESC NULLS LAST" for value in _list_tie_breakers(self.columns))]
        sequence_order = [f"{quote_identifier(name)} DESC" for name in self.sequence]
        if self.scd == 1:
            ranked_rows = _rank_rows(rows_with_deletes, self.key, [*sequence_order, *tie_order])
            return (
                f"SELECT {quote_columns(list_column_names(self.columns))} FROM "
                f"({ranked_rows}) WHERE {_RANK} = 1 AND NOT {_DELETES}"
            )
        ranked_rows = _rank_rows(rows_with_deletes, (*self.key, *self.sequence), tie_order)
        first_sequence = quote_identifier(self.sequence[0])
        next_value = (
            f"lead({first_sequence}) OVER (PARTITION BY {self.key_columns_sql} ORDER BY {quote_columns(self.sequence)})"
        )
        versions = f"SELECT *, {next_value} AS {_NEXT} FROM ({ranked_rows}) WHERE {_RANK} = 1"
        valid_from, valid_to = VALIDITY_COLUMNS
        return (
            f"SELECT {quote_columns(list_column_names(self.columns))}, "
            f"{first_sequence} AS {valid_from}, {_NEXT} AS {valid_to} "
            f"FROM ({versions}) WHERE NOT {_DELETES}"
        )

    def build_differing_keys_select(self, fields: Sequence[NestedField], first_rows: str, second_rows: str) -> str:
        """Return a SELECT of the keys of rows that only one of two SELECTs has, comparing these columns."""
        inexact_fields = [field for field in fields if _is_inexact(field.field_type)]
        texts = [
            f"{_text_sql(field)} AS {quote_identifier(internal_column('text', position))}"
            for position, field in enumerate(inexact_fields)
        ]
        exact_columns = ", ".join([quote_columns(list_column_names(fields)), *texts])
        left, right = (f"SELECT {exact_columns} FROM ({rows})" for rows in (first_rows, second_rows))
        return (
            f"SELECT DISTINCT {self.key_columns_sql} FROM (({left} EXCEPT {right}) UNION ALL ({right} EXCEPT {left})) "
            f"WHERE {self.is_applicable_sql}"
        )


def build_change_rule(source: Source, schema: "Schema", delete_condition: str | None) -> ChangeRule:
    """Return how the log of a source, with this schema, is applied; raise if that is not possible."""
    changes = source.origin
    assert isinstance(changes, Changes)
    fields = {field.name.lower(): field for field in schema.fields}
    key = [_find_field(source, fields, "key", name) for name in changes.key]
    sequence = [_find_field(source, fields, "sequence_by", name) for name in changes.sequence_by]
    _refuse_columns(source, "key", [field for field in key if not _is_exact(field.field_type)], "is not exact")
    _refuse_columns(
        source, "sequence_by", [field for field in sequence if not _is_ordered(field.field_type)], "has no order"
    )
    if changes.scd == 2 and (reserved_names := [name for name in VALIDITY_COLUMNS if name in fields]):
        what = f"the log of `{source.table}` has a column `{reserved_names[0]}`, which scd=2 adds"
        raise Mistake("CHANGES_COLUMN", what, at=str(source.place), fix="rename the column of the log")
    return ChangeRule(schema.fields, list_column_names(key), list_column_names(sequence), changes.scd, delete_condition)


def list_column_names(fields: Iterable[NestedField]) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(field.name for field in fields)


def quote_columns(columns: Iterable[str]) -> str:
    """Return columns as a list in SQL.

    >>> quote_columns(["a", "b c"])
    '"a", "b c"'
    """
    return ", ".join(quote_identifier(name) for name in columns)


def _rank_rows(rows: str, partition_columns: Sequence[str], order: Sequence[str]) -> str:
    rank = f"row_number() OVER (PARTITION BY {quote_columns(partition_columns)} ORDER BY {', '.join(order)})"
    return f"SELECT *, {rank} AS {_RANK} FROM ({rows})"


def _list_tie_breakers(fields: Iterable[NestedField]) -> list[str]:
    tie_breakers = []
    for field in sorted(fields, key=lambda field: field.name):
        tie_breakers.append(quote_identifier(field.name))
        if _is_inexact(field.field_type):
            tie_breakers.append(_text_sql(field))
    return tie_breakers


def _text_sql(field: NestedField) -> str:
    return f"CAST({quote_identifier(field.name)} AS VARCHAR)"


def _is_inexact(kind: IcebergType) -> bool:
    """Tell whether values that differ may compare as equal, such as 0.0 and -0.0."""
    return not kind.is_primitive or isinstance(kind, FloatType | DoubleType)


def _is_exact(kind: IcebergType) -> bool:
    return not _is_inexact(kind)


def _is_ordered(kind: IcebergType) -> bool:
    return kind.is_primitive and not isinstance(kind, BinaryType | BooleanType)


def _find_field(source: Source, fields: dict[str, NestedField], option: str, name: str) -> NestedField:
    matching_field = fields.get(name.lower())
    if matching_field is None:
        column_names = [field.name for field in fields.values()]
        what = f"`{option}` of `{source.table}` names {quote_value(name)}, which its log lacks"
        what += did_you_mean(name, column_names)
        raise Mistake("CHANGES_COLUMN", what, at=str(source.place), fix=f"its columns: {', '.join(column_names)}")
    return matching_field


def _refuse_columns(source: Source, option: str, fields: Sequence[NestedField], why: str) -> None:
    if fields:
        what = f"`{option}` of `{source.table}` names `{fields[0].name}`, which is {fields[0].field_type}: that {why}"
        fix = "choose numbers, texts, dates or timestamps"
        raise Mistake("CHANGES_COLUMN", what, at=str(source.place), fix=fix)
