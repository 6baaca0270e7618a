"""Read what `rn.http` sends: an address, headers, parameters, a body and credentials. Secrets must be `rn.secret`.

No mistake shows a value, because it may be a secret.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from runnel.declare.model.secret import Secret
from runnel.declare.options.option_reader import OptionReader

_URL = re.compile(
    r"https?://(?P<user>[^/?#\s]*@)?(\[[0-9a-f:.]+\]|[^/?#@:\[\]\s]+)(:(?P<port>\d{1,5}))?"
    r"(/[^?#\s]*)?(\?(?P<query>[^#\s]*))?(#\S*)?\Z",
    re.I,
)
_SECRET_HEADER = re.compile(r"authorization|cookie|(api|auth|access|private)[-_]?(key|token)|secret|password", re.I)
_SECRET_PARAM = re.compile(r"(api|access|auth|private)[-_]?(key|token)|token|(client_)?secret|password|passwd", re.I)


def read_url(reader: OptionReader, url: object) -> str | Secret:
    """Read the address of an API, which must not contain a secret as plain text."""
    if isinstance(url, Secret):
        return url
    match = _URL.match(url) if isinstance(url, str) else None
    if match is None or not 0 < int(match["port"] or 1) < 65_536:
        reader.reject("url", "that is not an HTTP address", 'write rn.http("https://api.example.com/orders")')
        return ""
    if match["user"] is not None:
        fix = 'leave it out of the address: user="ada", password=rn.secret("API_PASSWORD")'
        reader.reject("url", "the address has a user or a password in it", fix)
    for name in (pair.partition("=")[0] for pair in (match["query"] or "").split("&")):
        if _SECRET_PARAM.fullmatch(name):
            fix = f'leave it out of the address: params={{"{name}": rn.secret("API_KEY")}}'
            reader.reject("url", f"the address has `{name}` in it, which is a secret", fix)
    return match[0].partition("#")[0]


def read_pairs(reader: OptionReader, name: str, value: object) -> tuple[tuple[str, str | Secret], ...]:
    """Read headers or parameters as pairs of text; a value that looks like a secret must be `rn.secret`."""
    if value is None:
        return ()
    looks_secret = _SECRET_HEADER.search if name == "headers" else _SECRET_PARAM.fullmatch
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key.strip() for key in value):
        reader.reject(name, f"`{name}` must be a mapping from names to values", f'write {name}={{"name": "value"}}')
        return ()
    pairs: list[tuple[str, str | Secret]] = []
    for key, text in value.items():
        if not isinstance(text, Secret) and looks_secret(key):
            reader.reject(name, f"`{key}` in `{name}` is a secret", f'write {name}={{"{key}": rn.secret("API_KEY")}}')
        elif isinstance(text, Secret | str):
            pairs.append((key, text))
        elif isinstance(text, int | float):
            pairs.append((key, str(text).lower() if isinstance(text, bool) else str(text)))
        else:
            reader.reject(
                name, f"`{key}` in `{name}` is not a text, number or secret", f'write {name}={{"{key}": "..."}}'
            )
    return tuple(pairs)


def read_credentials(reader: OptionReader, values: Mapping[str, Any]) -> dict[str, Any]:
    """Read the credentials, as fields of Http."""
    for name in ("token", "password"):
        if values[name] is not None and not isinstance(values[name], Secret):
            reader.reject(name, f"`{name}` must be a secret", f'write {name}=rn.secret("API_{name.upper()}")')
    user, password, token = values["user"], values["password"], values["token"]
    if user is not None and not isinstance(user, Secret):
        user = reader.text("user")
    if (user is None) != (password is None):
        reader.reject(
            "user", "`user` and `password` go together", 'write user="ada", password=rn.secret("API_PASSWORD")'
        )
    if token is not None and user is not None:
        reader.reject("token", "`token` and `user` are two ways to sign in", "leave one of them out")
    return {"token": token, "user": user, "password": password}


def read_body(reader: OptionReader, values: Mapping[str, Any]) -> dict[str, Any]:
    """Read the method and the body, as fields of Http."""
    body = values["json"]
    method = reader.choice("method", ("GET", "POST"), "GET" if body is None else "POST")
    body_fields: list[tuple[str, str | Secret]] = []
    if body is not None and (not isinstance(body, Mapping) or not all(isinstance(name, str) for name in body)):
        reader.reject("json", "`json` must be a mapping", 'write json={"status": "open"}')
    elif body is not None and method == "GET":
        reader.reject("json", "a GET has no body", 'write method="POST", or params={...} for parameters of the address')
    else:
        for name, value in (body or {}).items():
            try:
                body_fields.append((name, value if isinstance(value, Secret) else json.dumps(value)))
            except (TypeError, ValueError):
                reader.reject(
                    "json",
                    f"`{name}` in `json` is not JSON",
                    "use texts, numbers, lists and mappings; a secret must be a whole value",
                )
    return {"method": method, "json": tuple(body_fields)}
