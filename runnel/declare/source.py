"""`rn.source`: declare a table that comes from outside."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast, overload

from runnel.declare.flow import Files, Manual, Source
from runnel.declare.given import Given
from runnel.declare.origins import NotYet
from runnel.declare.place import Place
from runnel.declare.registry import Registry, current
from runnel.errors import Mistake, nearest
from runnel.names import TableName, shown

F = TypeVar("F", bound=Callable[..., Any])
ON_BAD = ("stop", "drop", "quarantine")
ON_NEW_COLUMN = ("add", "ignore", "stop")
_TEXTS = str | Sequence[str] | None
_ORIGINS = "rn.files(...) or rn.manual()"


@overload
def source(
    table: str,
    origin: Files | Manual | NotYet,
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
def source(table: str, *, schema: str | None = None, **options: Any) -> Callable[[F], F]: ...


def source(table: str, origin: object = None, **options: Any) -> Callable[[F], F] | None:
    """Declare that the table `layer.name` comes from outside: `rn.source("ods.orders", rn.files("data/*.csv", ...))`.

    - `on_bad`: what to do with rows that can't be read: `"stop"`, `"drop"` or `"quarantine"`.
    - `on_new_column`: what to do when a file has more columns: `"add"`, `"ignore"` or `"stop"`.
    - `poll="1 minute"`: how often to look. `partition`, `key`: of the table.
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
        registry.claim(table)
        what = f"source `{table}` has no origin; this version has no sources that are functions yet"
        registry.wrong("DECLARE_NOT_YET", what, at=place, fix=f"pass {_ORIGINS}")
        return _same
    given.unknown([option for option in options if option not in known], known)
    _register(registry, place, name, origin, given)
    return None


def _register(registry: Registry, place: Place, table: TableName, origin: object, given: Given) -> None:
    found = Source(
        table=table,
        origin=origin if isinstance(origin, Files | Manual) else Manual(),
        place=place,
        on_bad=cast(Any, given.choice("on_bad", ON_BAD, "stop")),
        on_new_column=cast(Any, given.choice("on_new_column", ON_NEW_COLUMN, "add")),
        poll=given.duration("poll"),
        partition=given.partition(),
        key=given.texts("key", "a column"),
        tags=given.tags(),
        owner=given.text("owner"),
        description=given.text("description") or "",
    )
    if not isinstance(origin, Files | Manual | NotYet):
        what = f"source `{table}` can't come from {shown(origin)}"
        registry.wrong("DECLARE_SOURCE", what, at=place, fix=f"pass {_ORIGINS}")
    elif isinstance(origin, Files) and origin.schema is None and origin.format != "parquet":
        kind = {"csv": "CSV", "jsonl": "JSON lines"}[origin.format]
        what = f"source `{table}` reads {kind}, which does not say the types of its columns, and has no schema"
        fix = f'rn.files("{origin.glob}", schema="order_id long, day date, amount decimal(12,2)")'
        registry.wrong("DECLARE_SCHEMA_MISSING", what, at=place, fix=fix)
    _refuse_strange_keys(found, given)
    registry.add(found)


def _refuse_strange_keys(source: Source, given: Given) -> None:
    names = [column.name for column in source.origin.schema or ()]
    for column in source.key:
        if names and column.lower() not in [name.lower() for name in names]:
            close = nearest(column, names)
            what = f"`key` names {shown(column)}, which is not in its schema" + (f"; close: `{close}`" if close else "")
            given.wrong("key", what, f"its columns: {', '.join(names)}")


def _same(function: F) -> F:
    return function
