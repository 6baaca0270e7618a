"""Check the columns of the frame that a task returns, and bring them into the declared order.

Reads the frame's schema only; nothing is computed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.declare.model.column_types import SIMPLE, Column, SparkType, parse_json_type
from runnel.declare.model.flow import Task
from runnel.errors import Mistake, find_nearest, join_names
from runnel.internal_names import explain_reserved_name
from runnel.names import quote_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def conform_to_schema(frame: "DataFrame", task: Task) -> "DataFrame":
    """Return the frame with its columns as declared; refuse columns that no table can hold."""
    columns = [Column(field.name, parse_json_type(field.dataType.jsonValue())) for field in frame.schema.fields]
    if not columns:
        raise _schema_error("RUN_NO_COLUMNS", task, "returns a frame without columns", "select at least one column")
    _refuse_duplicates(columns, task)
    for column in columns:
        _refuse_reserved(column.name, task)
        _refuse_unstorable(column.name, column.type, task)
    return frame if task.options.schema is None else _select_declared(frame, columns, task.options.schema, task)


def _refuse_duplicates(columns: Sequence[Column], task: Task) -> None:
    names = [column.name.lower() for column in columns]
    duplicates = list(dict.fromkeys(column.name for column in columns if names.count(column.name.lower()) > 1))
    if duplicates:
        what = (
            f"returns the column{'s' * (len({name.lower() for name in duplicates}) > 1)} "
            f"{join_names(duplicates)} more than once"
        )
        fix = "drop or rename all but one; upper and lower case are the same. A join by name keeps one: on=[...]"
        raise _schema_error("RUN_DUPLICATE_COLUMN", task, what, fix)


def _refuse_reserved(name: str, task: Task) -> None:
    why = explain_reserved_name(name)
    if why:
        fix = f'rename it: F.col("`{name}`").alias("...")' if name.isprintable() else "rename it"
        raise _schema_error("RUN_COLUMN_NAME", task, f"returns a column {quote_value(name)}, {why}", fix)


def _refuse_unstorable(name: str, data_type: SparkType, task: Task) -> None:
    if data_type.kind == "void":
        what = f"returns the column `{name}` with nothing but nulls, which has no type"
        fix = f'cast it, such as F.lit(None).cast("string").alias("{name}")'
        raise _schema_error("RUN_VOID_COLUMN", task, what, fix)
    if data_type.kind not in (*SIMPLE, "decimal", "array", "map", "struct"):
        what = f"returns the column `{name}` of type {data_type}, which a table cannot hold"
        raise _schema_error(
            "RUN_COLUMN_TYPE", task, what, f"cast `{name}` to a type that a table holds, such as string"
        )
    for child in data_type.children:
        _refuse_unstorable(f"{name}.{child.name}", child.type, task)


def _select_declared(
    frame: "DataFrame", columns: Sequence[Column], declared: Sequence[Column], task: Task
) -> "DataFrame":
    """Compare the columns with the declared ones, report all differences at once, and select them in that order."""
    from pyspark.sql import functions as F

    returned_by_name = {column.name.lower(): column for column in columns}
    declared_by_name = {column.name.lower(): column for column in declared}
    missing = [column.name for column in declared if column.name.lower() not in returned_by_name]
    extra = [column.name for column in columns if column.name.lower() not in declared_by_name]
    mistyped = [
        (returned_by_name[name], declared_by_name[name])
        for name in declared_by_name
        if name in returned_by_name and not _is_same_type(returned_by_name[name].type, declared_by_name[name].type)
    ]
    if missing or extra:
        raise _schema_error("RUN_SCHEMA", task, *_describe_name_mismatch(missing, extra))
    if mistyped:
        mismatches = [
            f"`{column.name}` is declared {declared_column.type.schema_text}, "
            f"but the task returns {column.type.schema_text}"
            for column, declared_column in mistyped
        ]
        column, declared_column = mistyped[0]
        fix = f'cast it: F.col("{column.name}").cast("{declared_column.type.schema_text}"), or correct schema='
        raise _schema_error("RUN_SCHEMA", task, f"does not match its schema: {'; '.join(mismatches)}", fix)
    if [column.name for column in columns] == [column.name for column in declared]:
        return frame
    quoted = [
        (returned_by_name[name].name.replace("`", "``"), column.name) for name, column in declared_by_name.items()
    ]
    return frame.select(*(F.col(f"`{name}`").alias(new) for name, new in quoted))


def _describe_name_mismatch(missing: Sequence[str], extra: Sequence[str]) -> tuple[str, str]:
    problems = []
    if missing:
        close = find_nearest(missing[0], extra)
        hint = f" (close: `{close}`)" if close else ""
        problems.append(f"lacks {join_names(missing)}{hint}, which its schema declares")
    if extra:
        problems.append(f"returns {join_names(extra)}, which its schema does not declare")
    return " and ".join(problems), "return exactly the columns of schema=, or correct schema="


def _is_same_type(left: SparkType, right: SparkType) -> bool:
    """Return whether two types are the same, ignoring nullability."""
    if (left.kind, left.precision, left.scale) != (right.kind, right.precision, right.scale):
        return False
    pairs = list(zip(left.children, right.children, strict=False))
    return len(left.children) == len(right.children) and all(
        a.name.lower() == b.name.lower() and _is_same_type(a.type, b.type) for a, b in pairs
    )


def _schema_error(code: str, task: Task, what: str, fix: str) -> Mistake:
    return Mistake(code, f"task `{task.table}` {what}", at=str(task.place), fix=fix)
