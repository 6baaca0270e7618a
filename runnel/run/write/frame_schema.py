"""Check the columns of the frame that a task returns, and bring them into the declared order.

Reads the frame's schema only; nothing is computed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runnel.declare.model.column_types import SIMPLE, SYNONYMS, Column, SparkType
from runnel.declare.model.flow import Task
from runnel.errors import Mistake, listed, nearest
from runnel.internal_names import why_reserved
from runnel.names import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def shaped(frame: "DataFrame", task: Task) -> "DataFrame":
    """Return the frame with its columns as declared, refusing what no table can hold."""
    found = [Column(field.name, kind_of(field.dataType.jsonValue())) for field in frame.schema.fields]
    if not found:
        raise _wrong("RUN_NO_COLUMNS", task, "returns a frame without columns", "select at least one column")
    _refuse_duplicates(found, task)
    for column in found:
        _refuse_reserved(column.name, task)
        _refuse_unstorable(column.name, column.type, task)
    return frame if task.options.schema is None else _declared(frame, found, task.options.schema, task)


def kind_of(kind: Any) -> SparkType:
    """Return the type behind Spark's JSON form of it.

    >>> str(kind_of({"type": "array", "elementType": "decimal(12,2)", "containsNull": True}))
    'array<decimal(12,2)>'
    """
    if isinstance(kind, str):
        name, _, rest = kind.partition("(")
        if name == "decimal":
            precision, scale = rest.rstrip(")").split(",")
            return SparkType("decimal", int(precision), int(scale))
        return SparkType(SYNONYMS.get(name, kind))
    if kind["type"] == "array":
        return SparkType("array", children=(Column("element", kind_of(kind["elementType"])),))
    if kind["type"] == "map":
        pair = (Column("key", kind_of(kind["keyType"])), Column("value", kind_of(kind["valueType"])))
        return SparkType("map", children=pair)
    if kind["type"] == "struct":
        return SparkType("struct", children=tuple(Column(one["name"], kind_of(one["type"])) for one in kind["fields"]))
    return SparkType(str(kind["type"]))


def _refuse_duplicates(found: Sequence[Column], task: Task) -> None:
    names = [column.name.lower() for column in found]
    twice = list(dict.fromkeys(column.name for column in found if names.count(column.name.lower()) > 1))
    if twice:
        what = f"returns the column{'s' * (len({name.lower() for name in twice}) > 1)} {listed(twice)} more than once"
        fix = "drop or rename all but one; upper and lower case are the same. A join by name keeps one: on=[...]"
        raise _wrong("RUN_DUPLICATE_COLUMN", task, what, fix)


def _refuse_reserved(name: str, task: Task) -> None:
    why = why_reserved(name)
    if why:
        fix = f'name it otherwise: F.col("`{name}`").alias("...")' if name.isprintable() else "name it otherwise"
        raise _wrong("RUN_COLUMN_NAME", task, f"returns a column {shown(name)}, {why}", fix)


def _refuse_unstorable(name: str, kind: SparkType, task: Task) -> None:
    if kind.kind == "void":
        what = f"returns the column `{name}` with nothing but nulls, which has no type"
        fix = f'cast it, such as F.lit(None).cast("string").alias("{name}")'
        raise _wrong("RUN_VOID_COLUMN", task, what, fix)
    if kind.kind not in (*SIMPLE, "decimal", "array", "map", "struct"):
        what = f"returns the column `{name}` of type {kind}, which a table cannot hold"
        raise _wrong("RUN_COLUMN_TYPE", task, what, f"cast `{name}` to a type that a table holds, such as string")
    for child in kind.children:
        _refuse_unstorable(f"{name}.{child.name}", child.type, task)


def _declared(frame: "DataFrame", found: Sequence[Column], declared: Sequence[Column], task: Task) -> "DataFrame":
    """Compare with the declared columns, all at once, and put them in that order."""
    from pyspark.sql import functions as F

    have = {column.name.lower(): column for column in found}
    want = {column.name.lower(): column for column in declared}
    missing = [column.name for column in declared if column.name.lower() not in have]
    extra = [column.name for column in found if column.name.lower() not in want]
    wrong = [(have[name], want[name]) for name in want if name in have and not _alike(have[name].type, want[name].type)]
    if missing or extra:
        raise _wrong("RUN_SCHEMA", task, *_told_names(missing, extra))
    if wrong:
        told = [
            f"`{column.name}` is declared {other.type}, but the task returns {column.type}" for column, other in wrong
        ]
        column, other = wrong[0]
        fix = f'cast it: F.col("{column.name}").cast("{other.type}"), or correct schema='
        raise _wrong("RUN_SCHEMA", task, f"does not keep to its schema: {'; '.join(told)}", fix)
    if [column.name for column in found] == [column.name for column in declared]:
        return frame
    quoted = [(have[name].name.replace("`", "``"), column.name) for name, column in want.items()]
    return frame.select(*(F.col(f"`{name}`").alias(new) for name, new in quoted))


def _told_names(missing: Sequence[str], extra: Sequence[str]) -> tuple[str, str]:
    told = []
    if missing:
        close = nearest(missing[0], extra)
        hint = f" (close: `{close}`)" if close else ""
        told.append(f"lacks {listed(missing)}{hint}, which its schema declares")
    if extra:
        told.append(f"returns {listed(extra)}, which its schema does not declare")
    return " and ".join(told), "return exactly the columns of schema=, or correct schema="


def _alike(one: SparkType, other: SparkType) -> bool:
    """Tell whether two types are the same, whatever may be null in them."""
    if (one.kind, one.precision, one.scale) != (other.kind, other.precision, other.scale):
        return False
    pairs = list(zip(one.children, other.children, strict=False))
    return len(one.children) == len(other.children) and all(
        a.name.lower() == b.name.lower() and _alike(a.type, b.type) for a, b in pairs
    )


def _wrong(code: str, task: Task, what: str, fix: str) -> Mistake:
    return Mistake(code, f"task `{task.table}` {what}", at=str(task.place), fix=fix)
