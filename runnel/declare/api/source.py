"""`rn.source`: declare a table that comes from outside."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast, overload

from runnel.declare.model.endpoints import Changes, Files, Function, Http, Jdbc, Kafka, Manual, Origin, Push, Wrong
from runnel.declare.model.flow import CONTINUOUS, Source
from runnel.declare.model.source_location import Place
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import Registry, current
from runnel.errors import Mistake, nearest
from runnel.names import TableName, shown

F = TypeVar("F", bound=Callable[..., Any])
ON_BAD = ("stop", "drop", "quarantine")
ON_NEW_COLUMN = ("add", "ignore", "stop")
_KINDS = (Files, Jdbc, Kafka, Http, Push, Function, Changes, Manual)
_UNTYPED = {"csv": "CSV", "jsonl": "JSON lines", "json": "JSON", "xml": "XML"}
_TEXTS = str | Sequence[str] | None
_ORIGINS = "rn.files(...), rn.jdbc(...), rn.kafka(...), rn.http(...), rn.changes(...) or rn.manual()"


@overload
def source(
    table: str,
    origin: Origin | Manual | Wrong,
    *,
    on_bad: Literal["stop", "drop", "quarantine"] | None = None,
    on_new_column: Literal["add", "ignore", "stop"] | None = None,
    poll: str | None = None,
    partition: _TEXTS = None,
    key: _TEXTS = None,
    tags: _TEXTS = None,
    owner: str | None = None,
    description: str | None = None,
) -> None: ...


@overload
def source(
    table: str,
    *,
    schema: str | None = None,
    on_bad: Literal["stop", "drop", "quarantine"] | None = None,
    on_new_column: Literal["add", "ignore", "stop"] | None = None,
    poll: str | None = None,
    partition: _TEXTS = None,
    key: _TEXTS = None,
    tags: _TEXTS = None,
    owner: str | None = None,
    description: str | None = None,
) -> Callable[[F], F]: ...


def source(table: str, origin: object = None, **options: Any) -> Callable[[F], F] | None:
    """Declare that the table `layer.name` comes from outside: `rn.source("ods.orders", rn.files("data/*.csv", ...))`.

    Without an origin it decorates a function: of its last state, `None` at first, it returns the rows that are new,
    and the new state. One that takes no state returns all rows that there are. A parameter named `spark` gets the
    session.

    - `on_bad`: what to do with rows that can't be read: `"stop"`, `"drop"` or `"quarantine"`.
    - `on_new_column`: what to do when a file has more columns: `"add"`, `"ignore"` or `"stop"`.
    - `poll="1 minute"`: how often `runnel up` looks; `"continuous"`: on and on. `partition`, `key`: of the table.
    - `tags`, `owner`, `description`: for people and selections.
    """
    registry = current()
    place = registry.here()
    try:
        name = TableName.parse(table)
    except Mistake as mistake:
        registry.claim(table)
        registry.note(mistake, place)
        return None if origin is not None else _same
    given = Given(f"source `{table}`", options, lambda _, mistake: registry.note(mistake, place))
    known = ["on_bad", "on_new_column", "poll", "partition", "key", "tags", "owner", "description"]
    if origin is None:
        known.append("schema")
    given.unknown([option for option in options if option not in known], known)
    if origin is not None:
        _register(registry, place, name, origin, given)
        return None

    def declare(function: F) -> F:
        _register(registry, place, name, function_of(function, given), given)
        return function

    return declare


def function_of(function: Callable[..., Any], given: Given) -> Function | Wrong:
    """Return a function as an origin, its schema being among the options."""
    found = given.schema()
    try:
        given_to = inspect.signature(function).parameters
        wanted = [one for name, one in given_to.items() if one.default is one.empty and name != "spark"]
    except (TypeError, ValueError):
        wanted = []
    if len(wanted) > 1:
        name = getattr(function, "__name__", "?")
        what = f"`{name}` takes {len(wanted)} parameters, but a source takes its last state alone"
        given.wrong("function", what, "write def rates(state): ... and return rows, state")
        return Wrong()
    return Function(function, found)


def _register(registry: Registry, place: Place, table: TableName, origin: object, given: Given) -> None:
    key = given.texts("key", "a column") or (origin.key if isinstance(origin, Jdbc | Http | Push) else ())
    found = Source(
        table=table,
        origin=origin if isinstance(origin, _KINDS) else Manual(),
        place=place,
        on_bad=cast(Any, given.choice("on_bad", ON_BAD, "stop")),
        on_new_column=cast(Any, given.choice("on_new_column", ON_NEW_COLUMN, "add")),
        poll=given.duration("poll", CONTINUOUS),
        partition=given.partition(),
        key=key,
        tags=given.tags(),
        owner=given.text("owner"),
        description=given.text("description") or _doc(origin),
        never_null=key if isinstance(origin, Push) else (),
    )
    if not isinstance(origin, (*_KINDS, Wrong)):
        what = f"source `{table}` can't come from {shown(origin)}"
        registry.wrong("DECLARE_SOURCE", what, at=place, fix=f"pass {_ORIGINS}")
    read = origin.origin if isinstance(origin, Changes) else origin
    if isinstance(read, Files) and read.schema is None and read.format in _UNTYPED:
        kind = f"{_UNTYPED[read.format]}, which does not say the types of its columns"
        what = f"source `{table}` reads {kind}, and has no schema"
        fix = f'rn.files("{read.glob}", schema="order_id long, day date, amount decimal(12,2)")'
        registry.wrong("DECLARE_SCHEMA_MISSING", what, at=place, fix=fix)
    if isinstance(read, Kafka) and read.schema is None and read.format == "json":
        what = f"source `{table}` reads JSON, which does not say the types of its columns, and has no schema"
        fix = 'write schema="user long, page string, ts timestamp", or format="raw" for the bytes'
        registry.wrong("DECLARE_SCHEMA_MISSING", what, at=place, fix=fix)
    if isinstance(read, Http | Push) and read.schema is None:
        what = f"source `{table}` reads JSON, which does not say the types of its columns, and has no schema"
        address = '"https://...", ' if isinstance(read, Http) else ""
        fix = f'rn.http({address}schema="order_id long, day date, amount decimal(12,2)")'
        registry.wrong("DECLARE_SCHEMA_MISSING", what, at=place, fix=fix)
    if isinstance(read, Files) and (read.partition or read.compress):
        option = "partition" if read.partition else "compress"
        given.wrong(option, f"rn.files(..., {option}=...) is about sinks", "leave it out")
    if isinstance(origin, Files) and key:
        what = "`key` has no effect on files: rows with equal keys in two files would both be there"
        fix = f'rn.changes(rn.files(...), key="{key[0]}", sequence_by="...") keeps the last row of each key'
        given.wrong("key", what, f"{fix}; else leave `key` out")
    _refuse_strange_keys(found, given)
    registry.add(found)


def _doc(origin: object) -> str:
    return inspect.getdoc(origin.function) or "" if isinstance(origin, Function) else ""


def _refuse_strange_keys(source: Source, given: Given) -> None:
    names = [column.name for column in source.origin.schema or ()]
    for column in source.key:
        if names and column.lower() not in [name.lower() for name in names]:
            close = nearest(column, names)
            what = f"`key` names {shown(column)}, which is not in its schema" + (f"; close: `{close}`" if close else "")
            given.wrong("key", what, f"its columns: {', '.join(names)}")


def _same(function: F) -> F:
    return function
