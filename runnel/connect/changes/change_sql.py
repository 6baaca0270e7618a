"""How a table follows from a log of changes, as SQL of DuckDB's. Pure: texts in, texts out.

What it says depends on the set of the log's rows alone. Of rows with the same key and the same place in the sequence
one counts: a delete before others, else the greatest, column by column in the order of their names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.types import BinaryType, BooleanType, DoubleType, FloatType, IcebergType, NestedField

from runnel.declare.model.endpoints import VALIDITY, Changes
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, nearest
from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import quoted
from runnel.names import shown

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

ROW = '"t1"'  # what a condition over a row of the log calls it
_DELETES, _RANK, _NEXT = (quoted(internal_column(word)) for word in ("deletes", "rank", "next"))


@dataclass(frozen=True)
class Rule:
    """How a log with these columns is applied. `deletes` is the condition of a delete, over a row called `ROW`."""

    columns: tuple[NestedField, ...]
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    scd: int
    deletes: str | None = None

    @property
    def keys(self) -> str:
        """Return the columns of the key, as a list."""
        return listed(self.key)

    @property
    def is_whole(self) -> str:
        """Return the condition that a row of the log has a key and a place in the sequence."""
        return " AND ".join(f"{quoted(name)} IS NOT NULL" for name in (*self.key, *self.sequence))

    @property
    def fields(self) -> tuple[NestedField, ...]:
        """Return the columns of the table, in order."""
        if self.scd == 1:
            return self.columns
        first = next(field for field in self.columns if field.name == self.sequence[0])
        docs = ("from when on the row held", "until when it held; null: it holds still")
        return (
            *self.columns,
            *(NestedField(0, name, first.field_type, doc=doc) for name, doc in zip(VALIDITY, docs, strict=True)),
        )

    def table(self, rows: str) -> str:
        """Return a SELECT of the table's rows, given one of all rows of the log for the keys in question."""
        deletes = f"coalesce({self.deletes}, false)" if self.deletes else "false"
        judged = f"SELECT *, {deletes} AS {_DELETES} FROM ({rows}) AS {ROW} WHERE {self.is_whole}"
        ties = [f"{_DELETES} DESC", *(f"{value} DESC NULLS LAST" for value in _ties(self.columns))]
        last = [f"{quoted(name)} DESC" for name in self.sequence]
        if self.scd == 1:
            ranked = _ranked(judged, self.key, [*last, *ties])
            return f"SELECT {listed(names(self.columns))} FROM ({ranked}) WHERE {_RANK} = 1 AND NOT {_DELETES}"
        ranked = _ranked(judged, (*self.key, *self.sequence), ties)
        first = quoted(self.sequence[0])
        following = f"lead({first}) OVER (PARTITION BY {self.keys} ORDER BY {listed(self.sequence)})"
        versions = f"SELECT *, {following} AS {_NEXT} FROM ({ranked}) WHERE {_RANK} = 1"
        valid_from, valid_to = VALIDITY
        return (
            f"SELECT {listed(names(self.columns))}, {first} AS {valid_from}, {_NEXT} AS {valid_to} "
            f"FROM ({versions}) WHERE NOT {_DELETES}"
        )

    def apart(self, fields: Sequence[NestedField], one: str, other: str) -> str:
        """Return a SELECT of the keys of rows, with these columns, that only one of two SELECTs has."""
        inexact = [field for field in fields if _is_inexact(field.field_type)]
        texts = [f"{_text(field)} AS {quoted(internal_column('text', at))}" for at, field in enumerate(inexact)]
        exact = ", ".join([listed(names(fields)), *texts])
        left, right = (f"SELECT {exact} FROM ({rows})" for rows in (one, other))
        return (
            f"SELECT DISTINCT {self.keys} FROM (({left} EXCEPT {right}) UNION ALL ({right} EXCEPT {left})) "
            f"WHERE {self.is_whole}"
        )


def rule_of(source: Source, schema: "Schema", deletes: str | None) -> Rule:
    """Return how the log of a source is applied, whose columns are these; raise where that can't be."""
    changes = source.origin
    assert isinstance(changes, Changes)
    fields = {field.name.lower(): field for field in schema.fields}
    key = [_field(source, fields, "key", name) for name in changes.key]
    sequence = [_field(source, fields, "sequence_by", name) for name in changes.sequence_by]
    _refuse(source, "key", [field for field in key if not _is_exact(field.field_type)], "is not exact")
    _refuse(source, "sequence_by", [field for field in sequence if not _is_ordered(field.field_type)], "has no order")
    if changes.scd == 2 and (taken := [name for name in VALIDITY if name in fields]):
        what = f"the log of `{source.table}` has a column `{taken[0]}`, which scd=2 adds"
        raise Mistake("CHANGES_COLUMN", what, at=str(source.place), fix="name the log's column otherwise")
    return Rule(schema.fields, names(key), names(sequence), changes.scd, deletes)


def names(fields: Iterable[NestedField]) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(field.name for field in fields)


def listed(columns: Iterable[str]) -> str:
    """Return columns as a list in SQL.

    >>> listed(["a", "b c"])
    '"a", "b c"'
    """
    return ", ".join(quoted(name) for name in columns)


def _ranked(rows: str, by: Sequence[str], order: Sequence[str]) -> str:
    rank = f"row_number() OVER (PARTITION BY {listed(by)} ORDER BY {', '.join(order)})"
    return f"SELECT *, {rank} AS {_RANK} FROM ({rows})"


def _ties(fields: Iterable[NestedField]) -> list[str]:
    found = []
    for field in sorted(fields, key=lambda field: field.name):
        found.append(quoted(field.name))
        if _is_inexact(field.field_type):
            found.append(_text(field))
    return found


def _text(field: NestedField) -> str:
    return f"CAST({quoted(field.name)} AS VARCHAR)"


def _is_inexact(kind: IcebergType) -> bool:
    """Tell whether values that differ may compare as equal, such as 0.0 and -0.0."""
    return not kind.is_primitive or isinstance(kind, FloatType | DoubleType)


def _is_exact(kind: IcebergType) -> bool:
    return not _is_inexact(kind)


def _is_ordered(kind: IcebergType) -> bool:
    return kind.is_primitive and not isinstance(kind, BinaryType | BooleanType)


def _field(source: Source, fields: dict[str, NestedField], option: str, name: str) -> NestedField:
    found = fields.get(name.lower())
    if found is None:
        known = [field.name for field in fields.values()]
        close = nearest(name, known)
        what = f"`{option}` of `{source.table}` names {shown(name)}, which its log lacks"
        what += f"; close: `{close}`" if close else ""
        raise Mistake("CHANGES_COLUMN", what, at=str(source.place), fix=f"its columns: {', '.join(known)}")
    return found


def _refuse(source: Source, option: str, fields: Sequence[NestedField], why: str) -> None:
    if fields:
        what = f"`{option}` of `{source.table}` names `{fields[0].name}`, which is {fields[0].field_type}: that {why}"
        fix = "choose numbers, texts, dates or timestamps"
        raise Mistake("CHANGES_COLUMN", what, at=str(source.place), fix=fix)
