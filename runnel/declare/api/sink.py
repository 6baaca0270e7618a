"""`rn.sink`: declare where a table is delivered to."""

import hashlib
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

from runnel.declare.model.endpoints import Files, Function, InvalidEndpoint, Jdbc, Kafka, Target, Webhook
from runnel.declare.model.flow import Sink
from runnel.declare.model.secret import Secret
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import current_registry
from runnel.errors import Mistake
from runnel.names import TableName, quote_value, validate_branch_name

F = TypeVar("F", bound=Callable[..., Any])
_KINDS = (Files, Jdbc, Kafka, Webhook)
_TARGETS = "rn.jdbc(...), rn.files(...), rn.kafka(...) or rn.webhook(...), or decorate a function"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}\Z", re.ASCII)
_OPTION_NAMES = ("name", "branch", "retries")
_RESERVED_PREFIX = "runnel_"
_OBJECT_STORE_SCHEMES = (
    "s3",
    "s3a",
    "s3n",
    "gs",
    "gcs",
    "abfs",
    "abfss",
    "wasb",
    "wasbs",
    "oss",
)  # atomic writes


@overload
def sink(
    table: str,
    target: Target | InvalidEndpoint,
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
    """Declare that the table `layer.name` is delivered to `target`, or to the decorated function.

    The function gets the added rows as an Arrow table: `def send(rows): ...`. With a keyword parameter `change` it
    also gets the removed rows, and a key that detects a repeated delivery.

    - `name`: the name under which the sink's progress is stored; by default made of the table and the target.
    - `branch`: the branch whose commits are delivered, main by default. `retries`: per run, 2 by default.
    """
    registry = current_registry()
    place = registry.caller_location()
    try:
        table_name = TableName.parse(table)
    except Mistake as mistake:
        registry.report_mistake(mistake, place)
        return None if target is not None else _return_unchanged
    reader = OptionReader(f"sink of `{table}`", options, lambda _, mistake: registry.report_mistake(mistake, place))
    reader.reject_unknown([option for option in options if option not in _OPTION_NAMES], _OPTION_NAMES)

    def add(target: Target) -> None:
        name = reader.text("name") or _default_name(table_name, target)
        if not _NAME.match(name):
            reader.reject("name", f"{quote_value(name)} is not a name", "use letters, digits, _, -, . and :")
        registry.add(Sink(table_name, target, place, name, _read_branch(reader), reader.number("retries", 2)))

    def declare(function: F) -> F:
        if _has_row_parameter(function, reader):
            add(Function(function))
        return function

    if target is None:
        return declare
    if isinstance(target, _KINDS):
        if _accepts_rows(target, reader):
            add(target)
    elif not isinstance(target, InvalidEndpoint):
        what = f"the sink of `{table}` can't go to {quote_value(target)}"
        registry.reject("DECLARE_SINK", what, at=place, fix=f"pass {_TARGETS}")
    return None


def _accepts_rows(target: Files | Jdbc | Kafka | Webhook, reader: OptionReader) -> bool:
    """Return whether a target accepts rows; report a mistake if it does not."""
    problem: tuple[str, str, str] | None = None
    if isinstance(target, Files):
        problem = _check_files(target)
    elif isinstance(target, Jdbc):
        problem = _check_jdbc(target)
    elif isinstance(target, Kafka) and (target.pattern or len(target.topics) != 1):
        problem = ("topic", "rows go to one topic", 'name it: rn.kafka("seller_day", servers=...)')
    if problem is not None:
        reader.reject(*problem)
    return problem is None


def _check_files(target: Files) -> tuple[str, str, str] | None:
    path = target.glob
    if any(character in path for character in "*?["):
        return (
            "path",
            f"{quote_value(path)} is a glob, and a sink goes to one place",
            'name a file, or a folder: "export/day/"',
        )
    scheme, is_remote, remainder = path.partition("://")
    if is_remote and scheme not in _OBJECT_STORE_SCHEMES:
        return (
            "path",
            f"{quote_value(path)} is neither on this machine nor in an object store",
            f"use {_OBJECT_STORE_SCHEMES[0]}://...",
        )
    if is_remote and not remainder.strip("/").count("/") and not path.endswith("/"):
        return "path", f"{quote_value(path)} is a bucket", f'name a file in it, or a folder: "{path}/orders/"'
    if not path.endswith("/") and target.partition:
        return "path", f"a partitioned sink is a folder, but {quote_value(path)} is a file", f'write "{path}/"'
    if not path.endswith("/") and target.compress:
        return "compress", "`compress` is for folders", f'use the file extension: "{path}.{target.compress}"'
    if path.endswith((".bz2", ".xz")):
        return "path", f"{quote_value(path)}: files are compressed as .gz or .zst", "choose one of them"
    if target.format not in ("csv", "jsonl", "json", "parquet"):
        return "format", f"a sink can't write {target.format}", "use csv, jsonl, json or parquet"
    unsupported = [name for name, _ in target.options if name not in ("delimiter", "header", "null", "quote", "escape")]
    if unsupported:
        return unsupported[0], f"`{unsupported[0]}` applies only to sources", "leave it out"
    if target.format == "parquet" and (target.compress or path.endswith((".gz", ".zst"))):
        return "compress", "Parquet is compressed already", "leave it out"
    return None


def _check_jdbc(target: Jdbc) -> tuple[str, str, str] | None:
    if target.query is not None or target.table is None:
        return "table", "rows go to a table", 'name it: rn.jdbc("postgresql://...", table="seller_day", ...)'
    if target.table.rpartition(".")[2].strip('"`').lower().startswith(_RESERVED_PREFIX):
        what = f"{quote_value(target.table)}: Runnel records its deliveries in tables of that name"
        return "table", what, f"choose a name that does not begin with {_RESERVED_PREFIX}"
    if target.mode is None and not target.key:
        return "mode", "`mode` is missing", 'write mode="upsert", key=[...], or mode="overwrite", or mode="append"'
    if target.mode == "upsert" and not target.key:
        return "key", 'mode="upsert" needs the key of a row', 'write key=["seller_id", "day"]'
    return None


def _read_branch(reader: OptionReader) -> str:
    branch = reader.text("branch")
    if branch is None:
        return "main"
    try:
        validate_branch_name(branch)
    except Mistake as mistake:
        reader.report_mistake("branch", mistake)
    return branch


def _has_row_parameter(function: Callable[..., Any], reader: OptionReader) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required_keywords = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    if len(required) == 1 and set(required_keywords) <= {"change"}:
        return True
    name = getattr(function, "__name__", "?")
    what = f"`{name}` is called with the new rows, and with `change` if it has that keyword parameter"
    reader.reject("function", what, f"write def {name}(rows): ... or def {name}(rows, *, change): ...")
    return False


def _default_name(table: TableName, target: Target) -> str:
    """Return a name that depends only on the table and the destination, not on the password."""
    if isinstance(target, Function):
        return f"{table}:{getattr(target.function, '__name__', 'function')}"
    if isinstance(target, Files):
        kind, destination = "files", target.glob
    elif isinstance(target, Jdbc):
        kind, destination = "jdbc", f"{_strip_credentials(target.url)} {target.table}"
    elif isinstance(target, Kafka):
        kind, destination = "kafka", f"{target.topics[0]}"
    else:
        kind, destination = "webhook", _strip_credentials(target.url)
    return f"{table}:{kind}-{hashlib.sha256(destination.encode()).hexdigest()[:8]}"


def _strip_credentials(url: str | Secret) -> str:
    """Return an address without its user name and password.

    >>> _strip_credentials("postgresql://ada:secret@host/db")
    'postgresql://host/db'
    """
    return repr(url) if isinstance(url, Secret) else re.sub(r"(?<=://)[^/@]*@", "", url)


def _return_unchanged(function: F) -> F:
    return function
