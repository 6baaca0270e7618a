"""`rn.webhook`: an address that is told of changes."""

import re
from collections.abc import Mapping
from typing import Any

from runnel.declare.model.endpoints import Webhook, Wrong
from runnel.declare.model.secret import Secret
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import current
from runnel.names import shown

_URL = re.compile(r"https?://[^\s/]+\S*\Z")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


def webhook(
    url: str | Secret,
    *,
    rows: bool | None = None,
    batch: int | None = None,
    headers: Mapping[str, str | Secret] | None = None,
    token: Secret | None = None,
    secret: Secret | None = None,
    timeout: str | float | None = None,
    **unknown: object,
) -> Webhook | Wrong:
    """Name an address as a sink: it gets one POST of JSON for each commit, or several of up to `batch` rows.

    `rows=False` sends only how many rows came and went. `token` is sent as `Authorization: Bearer`; with `secret` every
    request is signed. `timeout` is how long an answer may take, 10 seconds by default.
    """
    registry = current()
    place = registry.here()
    values: dict[str, Any] = {"url": url, "rows": rows, "batch": batch, "headers": headers}
    values |= {"token": token, "secret": secret, "timeout": timeout}
    given = Given("rn.webhook(...)", values, lambda _, mistake: registry.note(mistake, place))
    given.unknown(list(unknown), list(values)[1:])
    for name in ("token", "secret"):
        if values[name] is not None and not isinstance(values[name], Secret):
            given.wrong(name, f"`{name}` is a secret, which must not stand in a file", f'{name}=rn.secret("HOOK")')
            return Wrong()
    if not isinstance(url, Secret) and not (isinstance(url, str) and _URL.match(url)):
        given.wrong("url", "the url must start with http:// or https://", 'write rn.webhook("https://host/path")')
        return Wrong()
    found = given.pairs("headers", (str, Secret), '"value"')
    for name, _ in found:
        if not _HEADER.match(name):
            given.wrong("headers", f"{shown(name)} is not the name of a header", 'write headers={"X-Team": "data"}')
    size = given.number("batch", 1000) or 1000
    sends = rows is None or given.flag("rows")
    return Webhook(url, sends, size, found, token, secret, given.seconds("timeout") or 10.0)
