"""`rn.changes`: declare a change log that is applied by key."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from runnel.declare.api.source import read_function_origin
from runnel.declare.model.column_types import Column
from runnel.declare.model.endpoints import (
    VALIDITY_COLUMNS,
    Changes,
    Files,
    Function,
    Http,
    InvalidEndpoint,
    Jdbc,
    Kafka,
    Manual,
    Push,
)
from runnel.declare.model.flow import LOG_SUFFIX, Source, log_table_of
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import current_registry
from runnel.declare.sql.row_condition import find_condition_columns
from runnel.errors import Mistake, did_you_mean
from runnel.names import TableName, quote_value

_LOG_ORIGINS = (Files, Jdbc, Kafka, Http, Push, Function)
_UNORDERED = ("array", "map", "struct", "binary", "boolean")
_INEXACT = ("array", "map", "struct", "float", "double")
_ORIGINS = "pass rn.files(...), rn.jdbc(...), rn.kafka(...), rn.http(...) or a function with schema=..."
_MAX_NAME_LENGTH = 63 - len(LOG_SUFFIX)


def changes(
    source: Files | Jdbc | Kafka | Http | Push | Callable[..., Any] | InvalidEndpoint,
    *,
    key: str | Sequence[str] | None = None,
    sequence_by: str | Sequence[str] | None = None,
    delete_when: str | None = None,
    scd: Literal[1, 2] = 1,
    schema: str | None = None,
    **unknown: object,
) -> Changes | InvalidEndpoint:
    """Apply a change log by key: `rn.changes(rn.files("cdc/*.jsonl", schema=...), key="id", sequence_by="ts")`.

    `source` is any other origin, or a function with its `schema`. Its rows are stored in `<table>__changes`. The table
    is computed from them and does not depend on the order in which they arrived, or on duplicates.

    - `key`: the columns that identify a row. `sequence_by`: the columns that order the changes of a key.
    - `delete_when`: a SQL condition on a row of the log that is true for a delete: `"op = 'D'"`.
    - `scd=1`: the last row of each key. `scd=2`: every version, with `valid_from` and `valid_to`.
    """
    registry = current_registry()
    place = registry.caller_location()
    mistakes: list[Mistake] = []

    def note(_: str, mistake: Mistake) -> None:
        mistakes.append(mistake)
        registry.report_mistake(mistake, place)

    values = {"key": key, "sequence_by": sequence_by, "delete_when": delete_when, "scd": scd, "schema": schema}
    reader = OptionReader("rn.changes(...)", values, note)
    reader.reject_unknown(list(unknown), list(values))
    origin = _read_origin(reader, source, schema)
    if scd not in (1, 2) or isinstance(scd, bool):
        fix = "scd=1 keeps the last row of each key, scd=2 every version of it"
        reader.reject("scd", f"`scd` can't be {quote_value(scd)}", fix)
    declaration = Changes(
        cast(Any, origin),
        _read_required(reader, "key", key, '"id"'),
        _read_required(reader, "sequence_by", sequence_by, '"ts"'),
        reader.text("delete_when"),
        scd if scd == 2 else 1,
    )
    if origin is not None:
        declaration = _check_columns(reader, declaration)
    return InvalidEndpoint() if origin is None or mistakes else declaration


def add_change_logs(sources: Iterable[Source], reject: Callable[[Source, str, str], None]) -> Iterator[Source]:
    """Yield sources; before each source that applies a change log, yield the source of that log."""
    for source in sources:
        origin = source.origin
        if isinstance(origin, Changes):
            if len(source.table.name) > _MAX_NAME_LENGTH:
                what = f"the name of `{source.table}` is too long: its log is `{log_table_of(source.table)}`"
                reject(source, what, f"use at most {_MAX_NAME_LENGTH} characters after the layer")
            if source.key and source.key != origin.key:
                reject(source, f"the key of `{source.table}` is the key of its changes", "leave out key= of rn.source")
            yield _derive_log_source(source, log_table_of(source.table), origin)
        yield source


def _derive_log_source(source: Source, table: TableName, changes: Changes) -> Source:
    return replace(
        source,
        table=table,
        origin=changes.origin,
        partition=(),
        key=(),
        description=f"The log of {source.table}.",
        never_null=(*changes.key, *changes.sequence_by),
    )


def _read_origin(
    reader: OptionReader, source: object, schema: str | None
) -> Files | Jdbc | Kafka | Http | Push | Function | None:
    if callable(source) and not isinstance(source, type):
        function_origin = read_function_origin(source, reader)
        return function_origin if isinstance(function_origin, Function) else None
    if schema is not None:
        reader.reject("schema", "`schema` is only for functions; an origin has its own", 'rn.files(..., schema="...")')
    if isinstance(source, _LOG_ORIGINS):
        return source
    if isinstance(source, Manual | Changes):
        label = "rn.manual()" if isinstance(source, Manual) else "another rn.changes(...)"
        reader.reject("source", f"changes can't come from {label}", _ORIGINS)
    elif not isinstance(source, InvalidEndpoint):  # its mistake was already reported
        reader.reject("source", f"changes can't come from {quote_value(source)}", _ORIGINS)
    return None


def _read_required(reader: OptionReader, name: str, value: object, example: str) -> tuple[str, ...]:
    if value is None or value == []:
        reader.reject(name, f"`{name}` is missing", f"write {name}={example}")
    return reader.texts(name, "a column")


def _check_columns(reader: OptionReader, declaration: Changes) -> Changes:
    """Return the declaration with columns spelled as in the schema; report columns that can't be used."""
    columns = {column.name.lower(): column for column in declaration.origin.schema or ()}
    has_unlisted_columns = not columns or (isinstance(declaration.origin, Kafka) and bool(declaration.origin.include))
    key = _match_column_names(reader, "key", declaration.key, columns, has_unlisted_columns)
    sequence = _match_column_names(reader, "sequence_by", declaration.sequence_by, columns, has_unlisted_columns)
    _refuse_types(reader, "key", [columns.get(name.lower()) for name in key], _INEXACT, "is not exact")
    _refuse_types(reader, "sequence_by", [columns.get(name.lower()) for name in sequence], _UNORDERED, "has no order")
    if shared := [name for name in key if name in sequence]:
        what = f"`{shared[0]}` is in `key` and in `sequence_by`: every row would be a key of its own"
        reader.reject("key", what, "the key says what a row is about, the sequence when it was so")
    for name in VALIDITY_COLUMNS if declaration.scd == 2 else ():
        if name in columns:
            what = f"the log has a column `{name}`, which scd=2 adds"
            reader.reject("scd", what, "rename the column of the log")
    if declaration.delete_when is not None:
        for name in _find_condition_columns(reader, declaration.delete_when):
            if not has_unlisted_columns and name.lower() not in columns:
                reader.reject(
                    "delete_when", _describe_unknown_column("delete_when", name, columns), _list_columns(columns)
                )
    return replace(declaration, key=key, sequence_by=sequence)


def _match_column_names(
    reader: OptionReader, option: str, names: Sequence[str], columns: dict[str, Column], has_unlisted_columns: bool
) -> tuple[str, ...]:
    spellings = []
    for name in names:
        column = columns.get(name.lower())
        if column is None and not has_unlisted_columns:
            reader.reject(option, _describe_unknown_column(option, name, columns), _list_columns(columns))
        spellings.append(column.name if column else name)
    return tuple(spellings)


def _find_condition_columns(reader: OptionReader, condition: str) -> tuple[str, ...]:
    try:
        return find_condition_columns(condition)
    except Mistake as mistake:
        reader.reject("delete_when", f"`delete_when`: {mistake.what}", mistake.fix)
        return ()


def _refuse_types(
    reader: OptionReader, option: str, columns: Sequence[Column | None], kinds: Sequence[str], problem: str
) -> None:
    for column in columns:
        if column is not None and column.type.kind in kinds:
            what = f"`{option}` names `{column.name}`, which is {column.type.schema_text}: that {problem}"
            reader.reject(option, what, "choose numbers, texts, dates or timestamps")


def _describe_unknown_column(option: str, name: str, columns: dict[str, Column]) -> str:
    return f"`{option}` names {quote_value(name)}, which is not in its schema" + did_you_mean(
        name, [column.name for column in columns.values()]
    )


def _list_columns(columns: dict[str, Column]) -> str:
    return f"its columns: {', '.join(column.name for column in columns.values())}"
