"""`rn.http`: a REST API that is polled or, without an address, events that are pushed to the service."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from runnel.declare.model.endpoints import Http, Push, Wrong
from runnel.declare.model.secret import Secret
from runnel.declare.options.http_request_options import access_of, body_of, pairs_of, url_of
from runnel.declare.options.option_reader import Given
from runnel.declare.options.push_options import key_of, push_of
from runnel.declare.registry import current
from runnel.errors import Mistake
from runnel.names import shown

_PARAM = {"page": "page", "offset": "offset", "cursor": "cursor"}
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:per|a|/)\s*(second|minute|hour|day)\s*\Z")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_OF = {"cursor": ("cursor",), "next": ("link",), "first": ("page",), "more": ("page", "offset")}


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
) -> Http | Push | Wrong:
    """Poll a REST API: `rn.http("https://api.example.com/orders", records="data.items", paging="page", schema=...)`.

    Without an address, let other programs push events: `rn.http(schema="id long, kind string")` takes what is posted
    to `/api/v1/sources/TABLE/events`. `key="id"` knows an event that comes again; `keep="7 days"` is how long events
    and keys are kept after they were taken in.

    - `records`: where the list of records stands in an answer; without it the answer is the list, or NDJSON.
    - `paging`: `"page"` (from `first`=1 on) and `"offset"`, until a page is empty or `more` says so; `"cursor"`, which
      stands at `cursor`; `"link"`, the header Link or the URL at `next`. `param` takes the page, offset or cursor;
      `size={"per_page": 100}` asks for larger pages.
    - `since={"updated_since": "updated_at"}`: ask only for what is new: the parameter gets the greatest value of the
      field so far. `key`: records take the place of earlier ones; without it, they are appended. Without `since` an
      answer is all there is and replaces all rows, unless there is a `key` or `append=True`.
    - `token`, `user` and `password`, and secrets in `headers`, `params` and `json` are `rn.secret(...)`.
    - `method="POST"` sends `json` and the parameters of paging as its body.
    - `rate="10 per second"`, `timeout="30 seconds"`, `retries=4`, `max_pages=10_000`.
    """
    registry = current()
    place = registry.here()
    values = {name: value for name, value in locals().items() if name not in ("registry", "place", "unknown")}
    wrong: list[Mistake] = []

    def note(_: str, mistake: Mistake) -> None:
        wrong.append(mistake)
        registry.note(mistake, place)

    given = Given(f"rn.http({_told(url)})", values, note)
    given.unknown(list(unknown), [name for name in values if name != "url"])
    found = push_of(given, values) if url is None else _http(given, values)
    return Wrong() if wrong else found


def _http(given: Given, values: Mapping[str, Any]) -> Http:
    paging = given.choice("paging", ("page", "offset", "cursor", "link"), "none") or "none"
    schema = given.schema()
    if values["keep"] is not None:
        given.wrong("keep", "`keep` is about events that are pushed", "leave it out, or the address")
    return Http(
        url=url_of(given, values["url"]),
        schema=schema,
        records=_path(given, "records"),
        paging=cast(Any, paging),
        param=given.text("param") or _PARAM.get(paging),
        first=given.number("first", 1),
        size=_size(given, values["size"]),
        since=_since(given, values["since"]),
        key=key_of(given, schema),
        append=given.flag("append"),
        params=pairs_of(given, "params", values["params"]),
        headers=pairs_of(given, "headers", values["headers"]),
        rate=_rate(given, values["rate"]),
        timeout_seconds=given.seconds("timeout") or 30.0,
        retries=given.number("retries", 4),
        most_pages=given.number("max_pages", 10_000) or 10_000,
        **_of_paging(given, values, paging),
        **access_of(given, values),
        **body_of(given, values),
    )


def _told(url: object) -> str:
    """Return how messages call the API; what may hold a password or a key is left out."""
    if isinstance(url, Secret):
        return str(url)
    return shown(url.partition("?")[0]) if isinstance(url, str) and "@" not in url else ""


def _path(given: Given, name: str) -> str | None:
    found = given.text(name)
    if found is not None and not all(part.strip() for part in found.split(".")):
        given.wrong(name, f"`{name}` can't be {shown(found)}", f'write where it stands: {name}="data.items"')
    return found


def _of_paging(given: Given, values: Mapping[str, Any], paging: str) -> dict[str, Any]:
    for name, kinds in _OF.items():
        if values[name] is not None and paging not in kinds:
            fix = f'write paging="{kinds[0]}", or leave `{name}` out'
            given.wrong(name, f"`{name}` is about paging by {' or '.join(kinds)}", fix)
    if paging in ("none", "link") and values["param"] is not None:
        given.wrong("param", "`param` is about paging by page, offset or cursor", "leave it out")
    if paging == "cursor" and values["cursor"] is None:
        fix = 'say where the next cursor stands in an answer: cursor="meta.next_cursor"'
        given.wrong("cursor", 'paging="cursor" needs `cursor`', fix)
    return {name: _path(given, name) for name in ("cursor", "next", "more")}


def _pair(given: Given, name: str, value: object, default: str, kind: type, fix: str) -> tuple[str, Any] | None:
    """Return a parameter and a value, of a mapping with one entry or of a value for the parameter `default`."""
    if value is None:
        return None
    found = list(value.items()) if isinstance(value, Mapping) else [(default, value)]
    for param, one in found if len(found) == 1 else ():
        if isinstance(param, str) and param.strip() and isinstance(one, kind) and not isinstance(one, bool) and one:
            return param, one
    given.wrong(name, f"`{name}` can't be {shown(value)}", fix)
    return None


def _size(given: Given, value: object) -> tuple[str, int] | None:
    fix = 'name the parameter and the size of a page: size={"per_page": 100}'
    found = _pair(given, "size", value, "limit", int, fix)
    if found is not None and found[1] < 1:
        given.wrong("size", f"`size` can't be {found[1]}", fix)
    return found


def _since(given: Given, value: object) -> tuple[str, str] | None:
    fix = 'name the parameter and the field of a record: since={"updated_since": "updated_at"}'
    return _pair(given, "since", value, "since", str, fix)


def _rate(given: Given, value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    if isinstance(value, str) and (found := _RATE.match(value.lower())) is not None and float(found[1]):
        return float(found[1]) / _SECONDS[found[2]]
    if value is not None:
        given.wrong("rate", f"`rate` can't be {shown(value)}", 'write rate="10 per second", or a number per second')
    return None
