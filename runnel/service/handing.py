"""Hand a wish to the `runnel up` of this project, over HTTP, before anything large is imported.

What follows a run has its imports while the worker computes already. Whatever is out of the ordinary gives None: then
the wish goes into the queue by way of the catalog, which says what is wrong.
"""

import http.client
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from runnel.lake.author import default_author
from runnel.service import home

if TYPE_CHECKING:
    from runnel.client.planning import Wish
    from runnel.declare.settings import Settings

_SECONDS = 10.0


def hand_over(settings: "Settings", wish: "Wish", message: str | None, overrides: Sequence[str]) -> str | None:
    """Return the id of the run that the service of this project queued, where it is up and has a worker."""
    here = home.found(settings.home)
    token = home.token(settings.home)
    if here is None or token is None or here.catalog != home.catalog_of(settings.catalog) or wish.days is not None:
        return None
    body = {
        "select": list(wish.select),
        "exclude": list(wish.exclude),
        "branch": wish.branch,
        "full_refresh": wish.full_refresh,
        "verify": wish.verify,
        "message": message,
        "set": list(overrides),
        "author": default_author(),
    }
    place = urlsplit(here.url)
    line = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_SECONDS)
    try:
        if not any(one["state"] != "stopping" for one in _answer(line, token, "GET", "/status")["workers"]):
            return None
        return str(_answer(line, token, "POST", "/runs", body)["run"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        line.close()


def _answer(
    line: http.client.HTTPConnection, token: str, verb: str, path: str, body: Mapping[str, Any] | None = None
) -> Any:
    """Return the answer to a request; raises ValueError where it is refused."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    headers |= {"Idempotency-Key": secrets.token_urlsafe(24)} if body is not None else {}
    headers |= {"traceparent": trace} if (trace := os.environ.get("TRACEPARENT")) else {}
    line.request(verb, f"/api/v1{path}", json.dumps(body) if body is not None else None, headers)
    answer = line.getresponse()
    said = answer.read()
    if answer.status >= 300:
        raise ValueError(answer.reason)
    return json.loads(said)
