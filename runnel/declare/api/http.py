"""`rn.http`: declare a REST API to poll or, without an address, events that programs push to the service."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from runnel.declare.model.endpoints import Http, InvalidEndpoint, Push
from runnel.declare.model.secret import Secret
from runnel.declare.options.http_request_options import read_body, read_credentials, read_pairs, read_url
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.options.push_options import read_key, read_push
from runnel.declare.registry import current_registry
from runnel.errors import Mistake
from runnel.names import quote_value

_DEFAULT_PARAMS = {"page": "page", "offset": "offset", "cursor": "cursor"}
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:per|a|/)\s*(second|minute|hour|day)\s*\Z")
_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_PAGING_OF_OPTION = {"cursor": ("cursor",), "next": ("link",), "first": ("page",), "more": ("page", "offset")}


def http(
    url: str | Secret | None = None,
    *,
    schema: str | None = None,
    records: str | None = None,
    paging: Literal["page", "offset", "cursor", "link"] | None = None,
    param: str | None = None,
    first: int | None = None,
    size: int | Mapping[str, int] | None = None,
    cursor: str | None = None,
    next: str | None = None,
    more: str | None = None,
    since: str | Mapping[str, str] | None = None,
    key: str | Sequence[str] | None = None,
    append: bool | None = None,
    params: Mapping[str, Any] | None = None,
    headers: Mapping[str, Any] | None = None,
    token: Secret | None = None,
    user: str | Secret | None = None,
    password: Secret | None = None,
    method: Literal["GET", "POST"] | None = None,
    json: Mapping[str, Any] | None = None,
    rate: str | float | None = None,
    timeout: str | float | None = None,
    retries: int | None = None,
    max_pages: int | None = None,
    keep: str | float | None = None,
    **unknown: object,
) -> Http | Push | InvalidEndpoint:
    """Poll a REST API: `rn.http("https://api.example.com/orders", records="data.items", paging="page", schema=...)`.

    Without an address, let other programs push events: `rn.http(schema="id long, kind string")` receives what is posted
    to `/api/v1/sources/TABLE/events`. `key="id"` detects events that are sent twice; `keep="7 days"` is how long events
    and keys are kept after they were ingested.

    - `records`: the path of the list of records in a response; without it the response is the list, or NDJSON.
    - `paging`: `"page"` (from `first`=1 on) and `"offset"`, until a page is empty or `more` is false; `"cursor"`, read
      from the path `cursor`; `"link"`, the header Link or the URL at the path `next`. `param` is the query parameter
      for the page, offset or cursor; `size={"per_page": 100}` requests larger pages.
    - `since={"updated_since": "updated_at"}`: request only new records: the parameter gets the greatest value of the
      field so far. `key`: records replace earlier ones; without it, they are appended. Without `since` a response is
      complete and replaces all rows, unless there is a `key` or `append=True`.
    - `token`, `user` and `password`, and secrets in `headers`, `params` and `json` are `rn.secret(...)`.
    - `method="POST"` sends `json` and the paging parameters as its body.
    - `rate="10 per second"`, `timeout="30 seconds"`, `retries=4`, `max_pages=10_000`.
    """
    registry = current_registry()
    place = registry.caller_location()
    values = {name: value for name, value in locals().items() if name not in ("registry", "place", "unknown")}
    mistakes: list[Mistake] = []

    def note(_: str, mistake: Mistake) -> None:
        mistakes.append(mistake)
        registry.report_mistake(mistake, place)

    reader = OptionReader(f"rn.http({_describe_url(url)})", values, note)
    reader.reject_unknown(list(unknown), [name for name in values if name != "url"])
    origin = read_push(reader, values) if url is None else _read_http(reader, values)
    return InvalidEndpoint() if mistakes else origin


def _read_http(reader: OptionReader, values: Mapping[str, Any]) -> Http:
    paging = reader.choice("paging", ("page", "offset", "cursor", "link"), "none") or "none"
    schema = reader.schema()
    if values["keep"] is not None:
        reader.reject("keep", "`keep` applies only to pushed events", "leave it out, or the address")
    return Http(
        url=read_url(reader, values["url"]),
        schema=schema,
        records=_read_path(reader, "records"),
        paging=cast(Any, paging),
        param=reader.text("param") or _DEFAULT_PARAMS.get(paging),
        first=reader.number("first", 1),
        size=_read_size(reader, values["size"]),
        since=_read_since(reader, values["since"]),
        key=read_key(reader, schema),
        append=reader.flag("append"),
        params=read_pairs(reader, "params", values["params"]),
        headers=read_pairs(reader, "headers", values["headers"]),
        rate=_read_rate(reader, values["rate"]),
        timeout_seconds=reader.seconds("timeout") or 30.0,
        retries=reader.number("retries", 4),
        most_pages=reader.number("max_pages", 10_000) or 10_000,
        **_read_paging_options(reader, values, paging),
        **read_credentials(reader, values),
        **read_body(reader, values),
    )


def _describe_url(url: object) -> str:
    """Return the name of the API in messages, without parts that may contain a password or a key."""
    if isinstance(url, Secret):
        return str(url)
    return quote_value(url.partition("?")[0]) if isinstance(url, str) and "@" not in url else ""


def _read_path(reader: OptionReader, name: str) -> str | None:
    path = reader.text(name)
    if path is not None and not all(part.strip() for part in path.split(".")):
        reader.reject(name, f"`{name}` can't be {quote_value(path)}", f'write its path: {name}="data.items"')
    return path


def _read_paging_options(reader: OptionReader, values: Mapping[str, Any], paging: str) -> dict[str, Any]:
    for name, kinds in _PAGING_OF_OPTION.items():
        if values[name] is not None and paging not in kinds:
            fix = f'write paging="{kinds[0]}", or leave `{name}` out'
            reader.reject(name, f"`{name}` applies only to paging by {' or '.join(kinds)}", fix)
    if paging in ("none", "link") and values["param"] is not None:
        reader.reject("param", "`param` applies only to paging by page, offset or cursor", "leave it out")
    if paging == "cursor" and values["cursor"] is None:
        fix = 'name the path of the next cursor in an answer: cursor="meta.next_cursor"'
        reader.reject("cursor", 'paging="cursor" needs `cursor`', fix)
    return {name: _read_path(reader, name) for name in ("cursor", "next", "more")}


def _read_pair(
    reader: OptionReader, name: str, value: object, default: str, kind: type, fix: str
) -> tuple[str, Any] | None:
    """Return a parameter and its value, from a mapping with one entry or from a bare value for `default`."""
    if value is None:
        return None
    entries = list(value.items()) if isinstance(value, Mapping) else [(default, value)]
    for param, item in entries if len(entries) == 1 else ():
        if isinstance(param, str) and param.strip() and isinstance(item, kind) and not isinstance(item, bool) and item:
            return param, item
    reader.reject(name, f"`{name}` can't be {quote_value(value)}", fix)
    return None


def _read_size(reader: OptionReader, value: object) -> tuple[str, int] | None:
    fix = 'name the parameter and the size of a page: size={"per_page": 100}'
    pair = _read_pair(reader, "size", value, "limit", int, fix)
    if pair is not None and pair[1] < 1:
        reader.reject("size", f"`size` can't be {pair[1]}", fix)
    return pair


def _read_since(reader: OptionReader, value: object) -> tuple[str, str] | None:
    fix = 'name the parameter and the field of a record: since={"updated_since": "updated_at"}'
    return _read_pair(reader, "since", value, "since", str, fix)


def _read_rate(reader: OptionReader, value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    if isinstance(value, str) and (match := _RATE.match(value.lower())) is not None and float(match[1]):
        return float(match[1]) / _UNIT_SECONDS[match[2]]
    if value is not None:
        reader.reject(
            "rate", f"`rate` can't be {quote_value(value)}", 'write rate="10 per second", or a number per second'
        )
    return None
