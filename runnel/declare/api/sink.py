"""`rn.sink`: declare where a table is handed on to."""

import hashlib
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

from runnel.declare.model.endpoints import Files, Function, Jdbc, Kafka, Target, Webhook, Wrong
from runnel.declare.model.flow import Sink
from runnel.declare.model.secret import Secret
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import current
from runnel.errors import Mistake
from runnel.names import TableName, branch_name, shown

F = TypeVar("F", bound=Callable[..., Any])
_KINDS = (Files, Jdbc, Kafka, Webhook)
_TARGETS = "rn.jdbc(...), rn.files(...), rn.kafka(...) or rn.webhook(...), or decorate a function"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}\Z", re.ASCII)
_KNOWN = ("name", "branch", "retries")
_OWN_TABLES = "runnel_"
_STORES = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs", "oss")  # where an object is there whole


@overload
def sink(
    table: str,
    target: Target | Wrong,
    *,
    name: str | None = None,
    branch: str | None = None,
    retries: int | None = None,
) -> None: ...


@overload
def sink(
    table: str, *, name: str | None = None, branch: str | None = None, retries: int | None = None
) -> Callable[[F], F]: ...


def sink(table: str, target: object = None, **options: Any) -> Callable[[F], F] | None:
    """Declare that the table `layer.name` is handed on to `target`, or to the function that this decorates.

    The function gets the rows that came as an Arrow table: `def send(rows): ...`. With a keyword parameter `change` it
    also gets what went, and the key by which a delivery that comes twice is known.

    - `name`: by which it is known how far the sink has come; by default made of the table and where it goes.
    - `branch`: whose commits are delivered, main by default. `retries`: how often a run tries again, 2 by default.
    """
    registry = current()
    place = registry.here()
    try:
        found = TableName.parse(table)
    except Mistake as mistake:
        registry.note(mistake, place)
        return None if target is not None else _same
    given = Given(f"sink of `{table}`", options, lambda _, mistake: registry.note(mistake, place))
    given.unknown([option for option in options if option not in _KNOWN], _KNOWN)

    def add(target: Target) -> None:
        name = given.text("name") or _name(found, target)
        if not _NAME.match(name):
            given.wrong("name", f"{shown(name)} is not a name", "use letters, digits, _, -, . and :")
        registry.add(Sink(found, target, place, name, _branch(given), given.number("retries", 2)))

    def declare(function: F) -> F:
        if _takes_rows(function, given):
            add(Function(function))
        return function

    if target is None:
        return declare
    if isinstance(target, _KINDS):
        if _fits(target, given):
            add(target)
    elif not isinstance(target, Wrong):
        what = f"the sink of `{table}` can't go to {shown(target)}"
        registry.wrong("DECLARE_SINK", what, at=place, fix=f"pass {_TARGETS}")
    return None


def _fits(target: Files | Jdbc | Kafka | Webhook, given: Given) -> bool:
    """Tell whether a target can take rows; where not it is told."""
    wrong: tuple[str, str, str] | None = None
    if isinstance(target, Files):
        wrong = _files(target)
    elif isinstance(target, Jdbc):
        wrong = _jdbc(target)
    elif isinstance(target, Kafka) and (target.pattern or len(target.topics) != 1):
        wrong = ("topic", "rows go to one topic", 'name it: rn.kafka("seller_day", servers=...)')
    if wrong is not None:
        given.wrong(*wrong)
    return wrong is None


def _files(target: Files) -> tuple[str, str, str] | None:
    path = target.glob
    if any(character in path for character in "*?["):
        return (
            "path",
            f"{shown(path)} is a glob, and a sink goes to one place",
            'name a file, or a folder: "export/day/"',
        )
    scheme, is_away, rest = path.partition("://")
    if is_away and scheme not in _STORES:
        return "path", f"{shown(path)} is neither on this machine nor in an object store", f"use {_STORES[0]}://..."
    if is_away and not rest.strip("/").count("/") and not path.endswith("/"):
        return "path", f"{shown(path)} is a bucket", f'name a file in it, or a folder: "{path}/orders/"'
    if not path.endswith("/") and target.partition:
        return "path", f"a partitioned sink is a folder, but {shown(path)} is a file", f'write "{path}/"'
    if not path.endswith("/") and target.compress:
        return "compress", "`compress` is for folders", f'let the ending say it: "{path}.{target.compress}"'
    if path.endswith((".bz2", ".xz")):
        return "path", f"{shown(path)}: files are packed as .gz or .zst", "choose one of them"
    if target.format not in ("csv", "jsonl", "json", "parquet"):
        return "format", f"a sink can't write {target.format}", "use csv, jsonl, json or parquet"
    strange = [name for name, _ in target.options if name not in ("delimiter", "header", "null", "quote", "escape")]
    if strange:
        return strange[0], f"`{strange[0]}` is about reading", "leave it out"
    if target.format == "parquet" and (target.compress or path.endswith((".gz", ".zst"))):
        return "compress", "Parquet is compressed already", "leave it out"
    return None


def _jdbc(target: Jdbc) -> tuple[str, str, str] | None:
    if target.query is not None or target.table is None:
        return "table", "rows go to a table", 'name it: rn.jdbc("postgresql://...", table="seller_day", ...)'
    if target.table.rpartition(".")[2].strip('"`').lower().startswith(_OWN_TABLES):
        what = f"{shown(target.table)}: tables of that name are where Runnel notes its deliveries in the database"
        return "table", what, f"choose a name that does not begin with {_OWN_TABLES}"
    if target.mode is None and not target.key:
        return "mode", "`mode` is missing", 'write mode="upsert", key=[...], or mode="overwrite", or mode="append"'
    if target.mode == "upsert" and not target.key:
        return "key", 'mode="upsert" needs the key of a row', 'write key=["seller_id", "day"]'
    return None


def _branch(given: Given) -> str:
    found = given.text("branch")
    if found is None:
        return "main"
    try:
        branch_name(found)
    except Mistake as mistake:
        given.tell("branch", mistake)
    return found


def _takes_rows(function: Callable[..., Any], given: Given) -> bool:
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    asked = [
        one
        for one in known
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    named = [one.name for one in known if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if len(asked) == 1 and set(named) <= {"change"}:
        return True
    name = getattr(function, "__name__", "?")
    what = f"`{name}` is called with the rows that came, and `change` if it has that keyword parameter"
    given.wrong("function", what, f"write def {name}(rows): ... or def {name}(rows, *, change): ...")
    return False


def _name(table: TableName, target: Target) -> str:
    """Return a name that stays the same while the sink goes to the same place, whatever its password is."""
    if isinstance(target, Function):
        return f"{table}:{getattr(target.function, '__name__', 'function')}"
    if isinstance(target, Files):
        kind, place = "files", target.glob
    elif isinstance(target, Jdbc):
        kind, place = "jdbc", f"{_address(target.url)} {target.table}"
    elif isinstance(target, Kafka):
        kind, place = "kafka", f"{target.topics[0]}"
    else:
        kind, place = "webhook", _address(target.url)
    return f"{table}:{kind}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def _address(url: str | Secret) -> str:
    """Return an address without the name and the password in it.

    >>> _address("postgresql://ada:secret@host/db")
    'postgresql://host/db'
    """
    return repr(url) if isinstance(url, Secret) else re.sub(r"(?<=://)[^/@]*@", "", url)


def _same(function: F) -> F:
    return function
