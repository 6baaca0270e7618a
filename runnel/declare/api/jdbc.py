"""`rn.jdbc`: declare a table or query of a database as the origin of a source or the target of a sink. Pure."""

import re
from collections.abc import Sequence
from typing import Any, Literal, cast

from runnel.declare.model.endpoints import InvalidEndpoint, Jdbc
from runnel.declare.model.secret import Secret
from runnel.declare.options.duration import parse_duration
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import current_registry
from runnel.errors import Mistake, did_you_mean
from runnel.names import quote_value

SCHEMES = ("postgresql", "mysql", "mariadb", "sqlite")
MODES = ("append", "overwrite", "upsert")
MOST_PARTITIONS = 64
_SCHEME = re.compile(r"(?:jdbc:)?([A-Za-z0-9+]+):", re.ASCII)
_WITH_PASSWORD = re.compile(r"//[^/@]*:[^/@]*@|[?&]password=", re.IGNORECASE)
_EXAMPLE = 'rn.jdbc("postgresql://reader@db.example.org/shop", table="orders", password=rn.secret("PG_PASSWORD"))'
_ALIASES = {"postgres": "postgresql"}


def jdbc(
    url: str | Secret,
    *,
    table: str | None = None,
    query: str | None = None,
    user: str | Secret | None = None,
    password: Secret | None = None,
    watermark: str | None = None,
    overlap: str | float | None = None,
    key: str | Sequence[str] | None = None,
    partitions: int | None = None,
    removed: Literal["keep", "delete"] | None = None,
    mode: Literal["append", "overwrite", "upsert"] | None = None,
    schema: str | None = None,
    **unknown: object,
) -> Jdbc | InvalidEndpoint:
    """Declare a table or a query of PostgreSQL, MySQL, MariaDB or SQLite, to read from or to write to.

    - `table="public.orders"`, or `query="select ..."` of a source.
    - `watermark`: a column that only grows, such as `updated_at`; then a run reads only rows with greater values.
      `overlap="10 minutes"`: how far back to read again for late rows. It needs a `key`.
    - `key`: the columns that identify a row. A row that is read again replaces the earlier one, and a row deleted
      from the database is deleted; `removed="keep"` keeps it, and saves counting rows to detect deletes.
    - `partitions`: how many connections read a whole table in parallel.
    - `mode` of a sink: `"append"`, `"overwrite"`, or `"upsert"` by `key`.
    - `url` may be `rn.secret(...)`; `password` must be.
    """
    registry = current_registry()
    place = registry.caller_location()
    values: dict[str, Any] = {"url": url, "table": table, "query": query, "user": user, "password": password}
    values |= {"watermark": watermark, "overlap": overlap, "key": key, "partitions": partitions, "mode": mode}
    values["removed"] = removed
    values["schema"] = schema
    mistakes: list[Mistake] = []
    reader = OptionReader(_describe_owner(url), values, lambda _, mistake: mistakes.append(mistake))
    reader.reject_unknown(list(unknown), list(values)[1:])
    _check_url(reader, url)
    _check_secrets(reader, user, password)
    origin = Jdbc(
        url=url,
        table=reader.text("table"),
        query=reader.text("query"),
        user=user,
        password=password,
        watermark=reader.text("watermark"),
        overlap=_read_overlap(reader, overlap),
        key=reader.texts("key", "a column"),
        partitions=_read_partitions(reader, partitions),
        removed=cast(Any, reader.choice("removed", ("keep", "delete"), "delete")),
        mode=cast(Any, reader.choice("mode", MODES)),
        schema=reader.schema(),
    )
    _check_combination(reader, origin, removed)
    for mistake in mistakes:
        registry.report_mistake(mistake, place)
    return InvalidEndpoint() if mistakes else origin


def _describe_owner(url: object) -> str:
    """Return the name of the database in messages, without parts that may contain a password."""
    if not isinstance(url, str):
        return f"rn.jdbc({quote_value(url)})" if isinstance(url, Secret) else "rn.jdbc"
    return f"rn.jdbc({quote_value(re.sub(r'//[^/]*@', '//', url).split('?')[0])})"


def _check_url(reader: OptionReader, url: object) -> None:
    if isinstance(url, Secret):
        return
    if not isinstance(url, str) or not url.strip():
        reader.reject("url", "it needs the address of a database", f"write {_EXAMPLE}")
        return
    scheme = _SCHEME.match(url)
    name = scheme[1].lower() if scheme else ""
    if _ALIASES.get(name, name) not in SCHEMES:
        what = f"`{name}` is not a supported database" if name else "the address does not name a database"
        fix = "start the url with postgresql://, mysql://, mariadb:// or sqlite:///"
        reader.reject("url", what + did_you_mean(name, SCHEMES), fix)
    elif _WITH_PASSWORD.search(url):
        fix = 'take it out, and pass password=rn.secret("PG_PASSWORD"), or the whole url as rn.secret("DATABASE_URL")'
        reader.reject("url", "a password is in the url", fix)


def _check_secrets(reader: OptionReader, user: object, password: object) -> None:
    if password is not None and not isinstance(password, Secret):
        reader.reject("password", "`password` is in the file as text", 'write password=rn.secret("PG_PASSWORD")')
    if user is not None and not isinstance(user, Secret) and not (isinstance(user, str) and user):
        reader.reject("user", f"`user` must be text, not {quote_value(user)}", 'write user="reader"')


def _read_overlap(reader: OptionReader, value: object) -> str | None:
    """Read the overlap, a duration or a number, as text."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return str(value)
    try:
        parse_duration(value)
    except Mistake:
        fix = "write a duration such as 10 minutes, or a number if the watermark is a number"
        reader.reject("overlap", f"`overlap` can't be {quote_value(value)}", fix)
        return None
    return str(value)


def _read_partitions(reader: OptionReader, value: object) -> int:
    count = reader.number("partitions", 1)
    if value is not None and not 1 <= count <= MOST_PARTITIONS:
        reader.reject("partitions", f"`partitions` can't be {quote_value(value)}", f"write 1 to {MOST_PARTITIONS}")
    return max(count, 1)


def _check_combination(reader: OptionReader, origin: Jdbc, removed: object) -> None:
    if origin.table is not None and origin.query is not None:
        reader.reject("query", "it has both `table` and `query`", "leave one of them out")
    if origin.table is None and origin.query is None:
        reader.reject("table", "it has neither `table` nor `query`", 'write table="orders" or query="select ..."')
    if origin.overlap is not None and origin.watermark is None:
        reader.reject("overlap", "`overlap` needs a watermark", 'add watermark="updated_at"')
    elif origin.overlap is not None and not origin.key and origin.mode is None:
        what = "`overlap` reads rows again, and without a `key` they would be in the table twice"
        reader.reject("overlap", what, 'add key="id"')
    if removed is not None and not origin.key:
        reader.reject("removed", "`removed` needs a `key` that identifies rows", 'add key="id"')
    if origin.mode == "upsert" and not origin.key:
        reader.reject("mode", 'mode="upsert" needs to know which rows are the same', 'add key="id"')
    if origin.mode is not None and origin.query is not None:
        reader.reject("mode", "a sink writes to a table, not to a query", 'write table="seller_day"')
