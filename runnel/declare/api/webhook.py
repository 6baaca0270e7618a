"""`rn.webhook`: declare an address that gets a request for each change."""

import re
from collections.abc import Mapping
from typing import Any

from runnel.declare.model.endpoints import InvalidEndpoint, Webhook
from runnel.declare.model.secret import Secret
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import current_registry
from runnel.names import quote_value

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
) -> Webhook | InvalidEndpoint:
    """Declare an address as a sink: it gets one POST of JSON for each commit, or several of up to `batch` rows.

    `rows=False` sends only how many rows were added and removed. `token` is sent as `Authorization: Bearer`; with
    `secret` every request is signed. `timeout` is how long a response may take, 10 seconds by default.
    """
    registry = current_registry()
    place = registry.caller_location()
    values: dict[str, Any] = {"url": url, "rows": rows, "batch": batch, "headers": headers}
    values |= {"token": token, "secret": secret, "timeout": timeout}
    reader = OptionReader("rn.webhook(...)", values, lambda _, mistake: registry.report_mistake(mistake, place))
    reader.reject_unknown(list(unknown), list(values)[1:])
    for name in ("token", "secret"):
        if values[name] is not None and not isinstance(values[name], Secret):
            reader.reject(name, f"`{name}` is a secret, which must not be in a file", f'{name}=rn.secret("HOOK")')
            return InvalidEndpoint()
    if not isinstance(url, Secret) and not (isinstance(url, str) and _URL.match(url)):
        reader.reject("url", "the url must start with http:// or https://", 'write rn.webhook("https://host/path")')
        return InvalidEndpoint()
    header_pairs = reader.pairs("headers", (str, Secret), '"value"')
    for name, _ in header_pairs:
        if not _HEADER.match(name):
            reader.reject(
                "headers", f"{quote_value(name)} is not the name of a header", 'write headers={"X-Team": "data"}'
            )
    batch_size = reader.number("batch", 1000) or 1000
    sends_rows = rows is None or reader.flag("rows")
    return Webhook(url, sends_rows, batch_size, header_pairs, token, secret, reader.seconds("timeout") or 10.0)
