"""What `rn.http` sends: an address, headers, parameters, a body, and who asks. What is secret must be a secret.

No mistake shows a value: it may be what nobody should see.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from runnel.declare.model.secret import Secret
from runnel.declare.options.option_reader import Given

_URL = re.compile(
    r"https?://(?P<user>[^/?#\s]*@)?(\[[0-9a-f:.]+\]|[^/?#@:\[\]\s]+)(:(?P<port>\d{1,5}))?"
    r"(/[^?#\s]*)?(\?(?P<query>[^#\s]*))?(#\S*)?\Z",
    re.I,
)
_SECRET_HEADER = re.compile(r"authorization|cookie|(api|auth|access|private)[-_]?(key|token)|secret|password", re.I)
_SECRET_PARAM = re.compile(r"(api|access|auth|private)[-_]?(key|token)|token|(client_)?secret|password|passwd", re.I)


def url_of(given: Given, url: object) -> str | Secret:
    """Return the address of an API, in which nothing secret stands."""
    if isinstance(url, Secret):
        return url
    found = _URL.match(url) if isinstance(url, str) else None
    if found is None or not 0 < int(found["port"] or 1) < 65_536:
        given.wrong("url", "that is no address of HTTP", 'write rn.http("https://api.example.com/orders")')
        return ""
    if found["user"] is not None:
        fix = 'leave it out of the address: user="ada", password=rn.secret("API_PASSWORD")'
        given.wrong("url", "the address has a user or a password in it", fix)
    for name in (pair.partition("=")[0] for pair in (found["query"] or "").split("&")):
        if _SECRET_PARAM.fullmatch(name):
            fix = f'leave it out of the address: params={{"{name}": rn.secret("API_KEY")}}'
            given.wrong("url", f"the address has `{name}` in it, which is a secret", fix)
    return found[0].partition("#")[0]


def pairs_of(given: Given, name: str, value: object) -> tuple[tuple[str, str | Secret], ...]:
    """Return what is sent by name, as text; what looks like a secret must be one."""
    if value is None:
        return ()
    secret = _SECRET_HEADER.search if name == "headers" else _SECRET_PARAM.fullmatch
    if not isinstance(value, Mapping) or not all(isinstance(one, str) and one.strip() for one in value):
        given.wrong(name, f"`{name}` must be a mapping from names to values", f'write {name}={{"name": "value"}}')
        return ()
    found: list[tuple[str, str | Secret]] = []
    for one, text in value.items():
        if not isinstance(text, Secret) and secret(one):
            given.wrong(name, f"`{one}` in `{name}` is a secret", f'write {name}={{"{one}": rn.secret("API_KEY")}}')
        elif isinstance(text, Secret | str):
            found.append((one, text))
        elif isinstance(text, int | float):
            found.append((one, str(text).lower() if isinstance(text, bool) else str(text)))
        else:
            given.wrong(name, f"`{one}` in `{name}` is no text, number or secret", f'write {name}={{"{one}": "..."}}')
    return tuple(found)


def access_of(given: Given, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return who asks, as fields of Http."""
    for name in ("token", "password"):
        if values[name] is not None and not isinstance(values[name], Secret):
            given.wrong(name, f"`{name}` must be a secret", f'write {name}=rn.secret("API_{name.upper()}")')
    user, password, token = values["user"], values["password"], values["token"]
    if user is not None and not isinstance(user, Secret):
        user = given.text("user")
    if (user is None) != (password is None):
        given.wrong("user", "`user` and `password` go together", 'write user="ada", password=rn.secret("API_PASSWORD")')
    if token is not None and user is not None:
        given.wrong("token", "`token` and `user` are two ways to sign in", "leave one of them out")
    return {"token": token, "user": user, "password": password}


def body_of(given: Given, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the method and the body, as fields of Http."""
    body = values["json"]
    method = given.choice("method", ("GET", "POST"), "GET" if body is None else "POST")
    found: list[tuple[str, str | Secret]] = []
    if body is not None and (not isinstance(body, Mapping) or not all(isinstance(name, str) for name in body)):
        given.wrong("json", "`json` must be a mapping", 'write json={"status": "open"}')
    elif body is not None and method == "GET":
        given.wrong("json", "a GET has no body", 'write method="POST", or params={...} for what stands in the address')
    else:
        for name, value in (body or {}).items():
            try:
                found.append((name, value if isinstance(value, Secret) else json.dumps(value)))
            except (TypeError, ValueError):
                given.wrong(
                    "json",
                    f"`{name}` in `json` is not JSON",
                    "use texts, numbers, lists and mappings; a secret stands by itself",
                )
    return {"method": method, "json": tuple(found)}
