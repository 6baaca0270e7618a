"""`rn.jdbc`: a table or a query of a database, as the origin of a source or as the target of a sink. Pure."""

import re
from collections.abc import Sequence
from typing import Any, Literal, cast

from runnel.declare.model.endpoints import Jdbc, Wrong
from runnel.declare.model.secret import Secret
from runnel.declare.options.duration import seconds_of
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import current
from runnel.errors import Mistake, nearest
from runnel.names import shown

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
) -> Jdbc | Wrong:
    """Name a table or a query of PostgreSQL, MySQL, MariaDB or SQLite, to read from or to write to.

    - `table="public.orders"`, or `query="select ..."` of a source.
    - `watermark`: a column that only grows, such as `updated_at`; then only rows that came since are read.
      `overlap="10 minutes"`: how far back to look again for rows that came late. It needs a `key`.
    - `key`: the columns that identify a row. A row that is read again takes the place of the earlier one, and one that
      has vanished from the database goes; with `removed="keep"` it stays, and nobody has to count rows to see it.
    - `partitions`: how many connections read a whole table at once.
    - `mode` of a sink: `"append"`, `"overwrite"`, or `"upsert"` by `key`.
    - `url` may be `rn.secret(...)`; a `password` always is.
    """
    registry = current()
    place = registry.here()
    values: dict[str, Any] = {"url": url, "table": table, "query": query, "user": user, "password": password}
    values |= {"watermark": watermark, "overlap": overlap, "key": key, "partitions": partitions, "mode": mode}
    values["removed"] = removed
    values["schema"] = schema
    wrong: list[Mistake] = []
    given = Given(_owner(url), values, lambda _, mistake: wrong.append(mistake))
    given.unknown(list(unknown), list(values)[1:])
    _check_url(given, url)
    _check_secrets(given, user, password)
    found = Jdbc(
        url=url,
        table=given.text("table"),
        query=given.text("query"),
        user=user,
        password=password,
        watermark=given.text("watermark"),
        overlap=_overlap(given, overlap),
        key=given.texts("key", "a column"),
        partitions=_partitions(given, partitions),
        removed=cast(Any, given.choice("removed", ("keep", "delete"), "delete")),
        mode=cast(Any, given.choice("mode", MODES)),
        schema=given.schema(),
    )
    _check_together(given, found, removed)
    for mistake in wrong:
        registry.note(mistake, place)
    return Wrong() if wrong else found


def _owner(url: object) -> str:
    """Return how messages call it; whatever could hold a password is left out."""
    if not isinstance(url, str):
        return f"rn.jdbc({shown(url)})" if isinstance(url, Secret) else "rn.jdbc"
    return f"rn.jdbc({shown(re.sub(r'//[^/]*@', '//', url).split('?')[0])})"


def _check_url(given: Given, url: object) -> None:
    if isinstance(url, Secret):
        return
    if not isinstance(url, str) or not url.strip():
        given.wrong("url", "it needs the address of a database", f"write {_EXAMPLE}")
        return
    scheme = _SCHEME.match(url)
    name = scheme[1].lower() if scheme else ""
    if _ALIASES.get(name, name) not in SCHEMES:
        close = nearest(name, SCHEMES)
        what = f"`{name}` is no database that it knows" if name else "the address does not name a database"
        fix = "start the url with postgresql://, mysql://, mariadb:// or sqlite:///"
        given.wrong("url", what + (f"; close: `{close}`" if close else ""), fix)
    elif _WITH_PASSWORD.search(url):
        fix = 'take it out, and pass password=rn.secret("PG_PASSWORD"), or the whole url as rn.secret("DATABASE_URL")'
        given.wrong("url", "a password stands in the url", fix)


def _check_secrets(given: Given, user: object, password: object) -> None:
    if password is not None and not isinstance(password, Secret):
        given.wrong("password", "`password` stands in the file as text", 'write password=rn.secret("PG_PASSWORD")')
    if user is not None and not isinstance(user, Secret) and not (isinstance(user, str) and user):
        given.wrong("user", f"`user` must be text, not {shown(user)}", 'write user="reader"')


def _overlap(given: Given, value: object) -> str | None:
    """Return a duration, or a number, as text."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return str(value)
    try:
        seconds_of(value)
    except Mistake:
        fix = "write a duration such as 10 minutes, or a number where the watermark is one"
        given.wrong("overlap", f"`overlap` can't be {shown(value)}", fix)
        return None
    return str(value)


def _partitions(given: Given, value: object) -> int:
    found = given.number("partitions", 1)
    if value is not None and not 1 <= found <= MOST_PARTITIONS:
        given.wrong("partitions", f"`partitions` can't be {shown(value)}", f"write 1 to {MOST_PARTITIONS}")
    return max(found, 1)


def _check_together(given: Given, found: Jdbc, removed: object) -> None:
    if found.table is not None and found.query is not None:
        given.wrong("query", "it has both `table` and `query`", "leave one of them out")
    if found.table is None and found.query is None:
        given.wrong("table", "it has neither `table` nor `query`", 'write table="orders" or query="select ..."')
    if found.overlap is not None and found.watermark is None:
        given.wrong("overlap", "`overlap` is about a watermark, and there is none", 'add watermark="updated_at"')
    elif found.overlap is not None and not found.key and found.mode is None:
        what = "`overlap` reads rows again, and without a `key` they would be there twice"
        given.wrong("overlap", what, 'add key="id"')
    if removed is not None and not found.key:
        given.wrong("removed", "`removed` is about rows that a `key` identifies, and there is none", 'add key="id"')
    if found.mode == "upsert" and not found.key:
        given.wrong("mode", 'mode="upsert" needs to know which rows are the same', 'add key="id"')
    if found.mode is not None and found.query is not None:
        given.wrong("mode", "a sink writes to a table, not to a query", 'write table="seller_day"')
