"""`rn.source`: declare a table whose rows come from outside the lake."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast, overload

from runnel.declare.model.endpoints import (
    Changes,
    Files,
    Function,
    Http,
    InvalidEndpoint,
    Jdbc,
    Kafka,
    Manual,
    Origin,
    Push,
)
from runnel.declare.model.flow import CONTINUOUS, Source
from runnel.declare.model.source_location import SourceLocation
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import Registry, current_registry
from runnel.errors import Mistake, did_you_mean
from runnel.names import TableName, quote_value

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
    origin: Origin | Manual | InvalidEndpoint,
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

    Without an origin it decorates a function: the function gets its last state, `None` at first, and returns the new
    rows and the new state. A function without a state parameter returns all rows. A parameter named `spark` gets the
    session.

    - `on_bad`: what to do with rows that can't be read: `"stop"`, `"drop"` or `"quarantine"`.
    - `on_new_column`: what to do if a file has more columns: `"add"`, `"ignore"` or `"stop"`.
    - `poll="1 minute"`: how often `runnel up` polls; `"continuous"`: without pause. `partition`, `key`: of the table.
    - `tags`, `owner`, `description`: for people and selections.
    """
    registry = current_registry()
    place = registry.caller_location()
    try:
        name = TableName.parse(table)
    except Mistake as mistake:
        registry.claim(table)
        registry.report_mistake(mistake, place)
        return None if origin is not None else _return_unchanged
    reader = OptionReader(f"source `{table}`", options, lambda _, mistake: registry.report_mistake(mistake, place))
    allowed = ["on_bad", "on_new_column", "poll", "partition", "key", "tags", "owner", "description"]
    if origin is None:
        allowed.append("schema")
    reader.reject_unknown([option for option in options if option not in allowed], allowed)
    if origin is not None:
        _register_source(registry, place, name, origin, reader)
        return None

    def declare(function: F) -> F:
        _register_source(registry, place, name, read_function_origin(function, reader), reader)
        return function

    return declare


def read_function_origin(function: Callable[..., Any], reader: OptionReader) -> Function | InvalidEndpoint:
    """Return a function as an origin, with the schema from the options."""
    columns = reader.schema()
    try:
        parameters = inspect.signature(function).parameters
        required = [
            parameter
            for name, parameter in parameters.items()
            if parameter.default is parameter.empty and name != "spark"
        ]
    except (TypeError, ValueError):
        required = []
    if len(required) > 1:
        name = getattr(function, "__name__", "?")
        what = f"`{name}` takes {len(required)} parameters, but a source takes only its last state"
        reader.reject("function", what, "write def rates(state): ... and return rows, state")
        return InvalidEndpoint()
    return Function(function, columns)


def _register_source(
    registry: Registry, place: SourceLocation, table: TableName, origin: object, reader: OptionReader
) -> None:
    key = reader.texts("key", "a column") or (origin.key if isinstance(origin, Jdbc | Http | Push) else ())
    declaration = Source(
        table=table,
        origin=origin if isinstance(origin, _KINDS) else Manual(),
        place=place,
        on_bad=cast(Any, reader.choice("on_bad", ON_BAD, "stop")),
        on_new_column=cast(Any, reader.choice("on_new_column", ON_NEW_COLUMN, "add")),
        poll=reader.duration("poll", CONTINUOUS),
        partition=reader.partition(),
        key=key,
        tags=reader.tags(),
        owner=reader.text("owner"),
        description=reader.text("description") or _read_docstring(origin),
        never_null=key if isinstance(origin, Push) else (),
    )
    if not isinstance(origin, (*_KINDS, InvalidEndpoint)):
        what = f"source `{table}` can't come from {quote_value(origin)}"
        registry.reject("DECLARE_SOURCE", what, at=place, fix=f"pass {_ORIGINS}")
    read_origin = origin.origin if isinstance(origin, Changes) else origin
    if isinstance(read_origin, Files) and _lacks_schema(read_origin):
        kind = f"{_UNTYPED[read_origin.format]}, which does not say the types of its columns"
        what = f"source `{table}` reads {kind}, and has no schema"
        registry.reject("DECLARE_SCHEMA_MISSING", what, at=place, fix=_suggest_schema(registry, read_origin))
    if isinstance(read_origin, Kafka) and read_origin.schema is None and read_origin.format == "json":
        what = f"source `{table}` reads JSON, which does not say the types of its columns, and has no schema"
        fix = 'write schema="user long, page string, ts timestamp", or format="raw" for the bytes'
        registry.reject("DECLARE_SCHEMA_MISSING", what, at=place, fix=fix)
    if isinstance(read_origin, Http | Push) and read_origin.schema is None:
        what = f"source `{table}` reads JSON, which does not say the types of its columns, and has no schema"
        address = '"https://...", ' if isinstance(read_origin, Http) else ""
        fix = f'rn.http({address}schema="order_id long, day date, amount decimal(12,2)")'
        registry.reject("DECLARE_SCHEMA_MISSING", what, at=place, fix=fix)
    if isinstance(read_origin, Files) and (read_origin.partition or read_origin.compress):
        option = "partition" if read_origin.partition else "compress"
        reader.reject(option, f"rn.files(..., {option}=...) applies only to sinks", "leave it out")
    if isinstance(origin, Files) and key:
        what = "`key` has no effect on files: rows with equal keys in two files would both be kept"
        fix = f'rn.changes(rn.files(...), key="{key[0]}", sequence_by="...") keeps the last row of each key'
        reader.reject("key", what, f"{fix}; otherwise leave `key` out")
    _refuse_unknown_keys(declaration, reader)
    registry.add(declaration)


def _lacks_schema(files: Files) -> bool:
    return files.schema is None and not files.infers_schema and files.format in _UNTYPED


def _suggest_schema(registry: Registry, files: Files) -> str:
    """Return the fix for files without a schema: the schema of the user's own file if it can be read."""
    suggestion = registry.suggest_schema(files) if registry.suggest_schema is not None else None
    if suggestion is not None:
        return suggestion
    example = f'rn.files("{files.glob}", schema="order_id long, day date, amount decimal(12,2)")'
    return (
        f'{example}; `runnel schema FILE` prints the schema of a file, and schema="infer" settles it in the first run'
    )


def _read_docstring(origin: object) -> str:
    return inspect.getdoc(origin.function) or "" if isinstance(origin, Function) else ""


def _refuse_unknown_keys(source: Source, reader: OptionReader) -> None:
    names = [column.name for column in source.origin.schema or ()]
    for column in source.key:
        if names and column.lower() not in [name.lower() for name in names]:
            what = f"`key` names {quote_value(column)}, which is not in its schema" + did_you_mean(column, names)
            reader.reject("key", what, f"its columns: {', '.join(names)}")


def _return_unchanged(function: F) -> F:
    return function
