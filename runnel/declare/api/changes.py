"""`rn.changes`: a log of changes, applied by key."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from runnel.declare.api.source import function_of
from runnel.declare.model.column_types import Column
from runnel.declare.model.endpoints import VALIDITY, Changes, Files, Function, Http, Jdbc, Kafka, Manual, Push, Wrong
from runnel.declare.model.flow import LOG_ENDING, Source, log_of
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import current
from runnel.declare.sql.row_condition import columns_in
from runnel.errors import Mistake, nearest
from runnel.names import TableName, shown

_LOGS = (Files, Jdbc, Kafka, Http, Push, Function)
_UNORDERED = ("array", "map", "struct", "binary", "boolean")
_INEXACT = ("array", "map", "struct", "float", "double")
_ORIGINS = "pass rn.files(...), rn.jdbc(...), rn.kafka(...), rn.http(...) or a function with schema=..."
_LONGEST = 63 - len(LOG_ENDING)


def changes(
    source: Files | Jdbc | Kafka | Http | Push | Callable[..., Any] | Wrong,
    *,
    key: str | Sequence[str] | None = None,
    sequence_by: str | Sequence[str] | None = None,
    delete_when: str | None = None,
    scd: Literal[1, 2] = 1,
    schema: str | None = None,
    **unknown: object,
) -> Changes | Wrong:
    """Apply a log of changes by key: `rn.changes(rn.files("cdc/*.jsonl", schema=...), key="id", sequence_by="ts")`.

    `source` is any other origin, or a function with its `schema`. Its rows are kept in `<table>__changes`; the table
    itself follows from them, whatever order they came in and however often.

    - `key`: the columns that say what a row is about. `sequence_by`: those that say what comes after what.
    - `delete_when`: a condition in SQL over a row of the log, true for a delete: `"op = 'D'"`.
    - `scd=1`: the last row of each key. `scd=2`: every version, with `valid_from` and `valid_to`.
    """
    registry = current()
    place = registry.here()
    mistakes: list[Mistake] = []

    def note(_: str, mistake: Mistake) -> None:
        mistakes.append(mistake)
        registry.note(mistake, place)

    values = {"key": key, "sequence_by": sequence_by, "delete_when": delete_when, "scd": scd, "schema": schema}
    given = Given("rn.changes(...)", values, note)
    given.unknown(list(unknown), list(values))
    origin = _origin(given, source, schema)
    if scd not in (1, 2) or isinstance(scd, bool):
        fix = "scd=1 keeps the last row of each key, scd=2 every version of it"
        given.wrong("scd", f"`scd` can't be {shown(scd)}", fix)
    made = Changes(
        cast(Any, origin),
        _needed(given, "key", key, '"id"'),
        _needed(given, "sequence_by", sequence_by, '"ts"'),
        given.text("delete_when"),
        scd if scd == 2 else 1,
    )
    if origin is not None:
        made = _checked(given, made)
    return Wrong() if origin is None or mistakes else made


def with_logs(sources: Iterable[Source], wrong: Callable[[Source, str, str], None]) -> Iterator[Source]:
    """Yield sources; before one that applies changes, the source of its log."""
    for source in sources:
        origin = source.origin
        if isinstance(origin, Changes):
            if len(source.table.name) > _LONGEST:
                what = f"the name of `{source.table}` is too long: its log is `{log_of(source.table)}`"
                wrong(source, what, f"use at most {_LONGEST} characters after the layer")
            if source.key and source.key != origin.key:
                wrong(source, f"the key of `{source.table}` is that of its changes", "leave out key= of rn.source")
            yield _log(source, log_of(source.table), origin)
        yield source


def _log(source: Source, table: TableName, changes: Changes) -> Source:
    return replace(
        source,
        table=table,
        origin=changes.origin,
        partition=(),
        key=(),
        description=f"The log of {source.table}.",
        never_null=(*changes.key, *changes.sequence_by),
    )


def _origin(given: Given, source: object, schema: str | None) -> Files | Jdbc | Kafka | Http | Push | Function | None:
    if callable(source) and not isinstance(source, type):
        found = function_of(source, given)
        return found if isinstance(found, Function) else None
    if schema is not None:
        given.wrong("schema", "`schema` is that of a function; an origin has its own", 'rn.files(..., schema="...")')
    if isinstance(source, _LOGS):
        return source
    if isinstance(source, Manual | Changes):
        called = "rn.manual()" if isinstance(source, Manual) else "another rn.changes(...)"
        given.wrong("source", f"changes can't come from {called}", _ORIGINS)
    elif not isinstance(source, Wrong):  # what is wrong with that was told
        given.wrong("source", f"changes can't come from {shown(source)}", _ORIGINS)
    return None


def _needed(given: Given, name: str, value: object, example: str) -> tuple[str, ...]:
    if value is None or value == []:
        given.wrong(name, f"`{name}` is missing", f"write {name}={example}")
    return given.texts(name, "a column")


def _checked(given: Given, made: Changes) -> Changes:
    """Return what was declared with its columns spelled as the schema has them; what they can't be is told."""
    columns = {column.name.lower(): column for column in made.origin.schema or ()}
    has_more = not columns or (isinstance(made.origin, Kafka) and bool(made.origin.include))
    key = _spelled(given, "key", made.key, columns, has_more)
    sequence = _spelled(given, "sequence_by", made.sequence_by, columns, has_more)
    _refuse_types(given, "key", [columns.get(name.lower()) for name in key], _INEXACT, "is not exact")
    _refuse_types(given, "sequence_by", [columns.get(name.lower()) for name in sequence], _UNORDERED, "has no order")
    if both := [name for name in key if name in sequence]:
        what = f"`{both[0]}` is in `key` and in `sequence_by`: every row would be a key of its own"
        given.wrong("key", what, "the key says what a row is about, the sequence when it was so")
    for name in VALIDITY if made.scd == 2 else ():
        if name in columns:
            what = f"the log has a column `{name}`, which scd=2 adds"
            given.wrong("scd", what, "name the log's column otherwise")
    if made.delete_when is not None:
        for name in _named_in(given, made.delete_when):
            if not has_more and name.lower() not in columns:
                given.wrong("delete_when", _strange("delete_when", name, columns), _known(columns))
    return replace(made, key=key, sequence_by=sequence)


def _spelled(
    given: Given, option: str, names: Sequence[str], columns: dict[str, Column], has_more: bool
) -> tuple[str, ...]:
    found = []
    for name in names:
        column = columns.get(name.lower())
        if column is None and not has_more:
            given.wrong(option, _strange(option, name, columns), _known(columns))
        found.append(column.name if column else name)
    return tuple(found)


def _named_in(given: Given, condition: str) -> tuple[str, ...]:
    try:
        return columns_in(condition)
    except Mistake as mistake:
        given.wrong("delete_when", f"`delete_when`: {mistake.what}", mistake.fix)
        return ()


def _refuse_types(given: Given, option: str, columns: Sequence[Column | None], kinds: Sequence[str], why: str) -> None:
    for column in columns:
        if column is not None and column.type.kind in kinds:
            what = f"`{option}` names `{column.name}`, which is {column.type}: that {why}"
            given.wrong(option, what, "choose numbers, texts, dates or timestamps")


def _strange(option: str, name: str, columns: dict[str, Column]) -> str:
    close = nearest(name, [column.name for column in columns.values()])
    return f"`{option}` names {shown(name)}, which is not in its schema" + (f"; close: `{close}`" if close else "")


def _known(columns: dict[str, Column]) -> str:
    return f"its columns: {', '.join(column.name for column in columns.values())}"
