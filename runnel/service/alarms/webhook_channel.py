"""Notify a webhook: one POST of JSON."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from runnel.connect.http.declared_auth import use_declared_headers
from runnel.errors import Unreachable
from runnel.service.alarms.secrets import reveal_secret

if TYPE_CHECKING:
    from runnel.service.alarms.message import AlarmMessage

_TIMEOUT_SECONDS = 10.0


def post_alarm(channel: Mapping[str, Any], message: "AlarmMessage") -> None:
    """Post the alarm; raise if the server does not accept it. Errors never show the URL, which may be a secret."""
    import requests

    url = reveal_secret(channel["webhook"])
    headers = {"User-Agent": "runnel", "Content-Type": "application/json", "Idempotency-Key": quote(message.key)}
    headers |= {name: reveal_secret(value) for name, value in channel.get("headers", ())}
    body = json.dumps(message.json()).encode()
    try:
        response = requests.post(
            url,
            data=body,
            headers=headers,
            auth=use_declared_headers,
            timeout=_TIMEOUT_SECONDS,
            allow_redirects=False,
        )
    except (requests.RequestException, ValueError) as error:  # a header that can't be sent is a ValueError
        what = f"{urlsplit(url).hostname} does not answer ({type(error).__name__})"
        raise Unreachable("ALERT_WEBHOOK", what) from None
    if not 200 <= response.status_code < 300:
        raise Unreachable("ALERT_WEBHOOK", f"{urlsplit(url).hostname} answered {response.status_code}")
