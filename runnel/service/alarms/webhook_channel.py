"""Tell an alarm to an address: one POST of JSON."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from runnel.errors import Unreachable
from runnel.service.alarms.secrets import revealed

if TYPE_CHECKING:
    from runnel.service.alarms.message import Message

_SECONDS = 10.0


def post(way: Mapping[str, Any], message: "Message") -> None:
    """Send it; raises where the address did not accept it. No error shows the address, which may be a secret."""
    import requests

    url = revealed(way["webhook"])
    headers = {"User-Agent": "runnel", "Content-Type": "application/json", "Idempotency-Key": quote(message.key)}
    headers |= {name: revealed(value) for name, value in way.get("headers", ())}
    body = json.dumps(message.json()).encode()
    try:
        found = requests.post(url, data=body, headers=headers, timeout=_SECONDS, allow_redirects=False)
    except (requests.RequestException, ValueError) as error:  # a header that can't be sent is a ValueError
        what = f"{urlsplit(url).hostname} does not answer ({type(error).__name__})"
        raise Unreachable("ALERT_WEBHOOK", what) from None
    if not 200 <= found.status_code < 300:
        raise Unreachable("ALERT_WEBHOOK", f"{urlsplit(url).hostname} answered {found.status_code}")
