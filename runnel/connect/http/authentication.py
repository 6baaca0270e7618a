"""What proves to an API who asks. Secrets are revealed here, sent only to the API's own host, and hidden in texts."""

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, urlencode, urljoin, urlsplit, urlunsplit

from runnel.declare.model.endpoints import Http
from runnel.declare.model.flow import Source
from runnel.declare.model.secret import Secret, revealed
from runnel.errors import Mistake

_PORTS = {"http": 80, "https": 443}


class Access:
    """The address of an API with its headers, parameters and body."""

    def __init__(self, source: Source, origin: Http) -> None:
        """Reveal the secrets of an origin. Raises a Mistake that names one that is not set."""
        self._at = str(source.place)
        self._origin = origin
        self._hidden: dict[str, str] = {}
        self.url = self._revealed(origin.url)
        self._is_secret = isinstance(origin.url, Secret)
        self._check_url()
        self._params = {name: self._revealed(value) for name, value in origin.params}
        self._headers = {name: self._header(name, value) for name, value in origin.headers}
        self._body = {name: self._value(value) for name, value in origin.json}
        self._sign_in()

    @property
    def host(self) -> str:
        """Return the host, with its port where it is unusual; for people."""
        return str(self._origin.url) if self._is_secret else urlsplit(self.url).netloc

    @property
    def told(self) -> str:
        """Return how people know the API: without a query, which may hold what nobody should see."""
        return self.shown(self.url)

    def shown(self, url: str) -> str:
        """Return an address for people."""
        if self._is_secret:
            return str(self._origin.url)
        parts = urlsplit(url)
        return self.hide(f"{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}")

    def hide(self, text: str) -> str:
        """Return a text with the names of secrets in place of their values."""
        for value, name in sorted(self._hidden.items(), key=lambda one: -len(one[0])):
            text = text.replace(value, name)
        return text

    def secrets(self) -> tuple[str, ...]:
        """Return the names of the variables that prove who asks."""
        named = (self._origin.token, self._origin.user, self._origin.password, *dict(self._origin.headers).values())
        named = (*named, *dict(self._origin.params).values(), *dict(self._origin.json).values())
        return tuple(dict.fromkeys(one.name for one in named if isinstance(one, Secret)))

    def is_own(self, url: str) -> bool:
        """Tell whether an address is of the API's host, asked no less safely; only there secrets may go."""
        own, other = urlsplit(self.url), urlsplit(url)
        if own.hostname != other.hostname:
            return False
        ports = (own.port or _PORTS.get(own.scheme), other.port or _PORTS.get(other.scheme))
        same = own.scheme == other.scheme and ports[0] == ports[1]
        return same or (own.scheme == "http" and other.scheme == "https" and ports == (80, 443))

    def first(self, params: Mapping[str, Any]) -> str:
        """Return the address to ask with these parameters of paging, which win over the API's own."""
        more = {} if self._origin.method == "POST" else params
        return _with(self.url, {**self._params, **more})

    def following(self, link: str, base: str) -> str | None:
        """Return the address of a next page; behind a proxy APIs say `http` where they are asked by `https`."""
        url = joined(base, link)
        if url is None:
            return None
        own, parts = urlsplit(self.url), urlsplit(url)
        if own.scheme == "https" and parts.scheme == "http" and own.hostname == parts.hostname and not parts.port:
            url = urlunsplit(("https", own.netloc, parts.path, parts.query, ""))
        if not self.is_own(url):
            return url
        named = {name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)}
        secret = {name for name, value in self._origin.params if isinstance(value, Secret)}
        return _with(url, {name: self._params[name] for name in secret - named})

    def headers(self, url: str) -> dict[str, str]:
        """Return the headers for an address; another host gets none that are secret."""
        if self.is_own(url):
            return dict(self._headers)
        plain = {name for name, value in self._origin.headers if not isinstance(value, Secret)}
        return {name: value for name, value in self._headers.items() if name in plain}

    def body(self, url: str, params: Mapping[str, Any]) -> bytes | None:
        """Return the body for an address."""
        if self._origin.method != "POST":
            return None
        secret = {name for name, value in self._origin.json if isinstance(value, Secret)}
        kept = self._body if self.is_own(url) else {name: self._body[name] for name in self._body.keys() - secret}
        return json.dumps({**kept, **params}).encode()

    def _revealed(self, value: str | Secret) -> str:
        if not isinstance(value, Secret):
            return value
        found = revealed(value, self._at)
        for form in {found, found.strip(), quote(found, safe=""), quote_plus(found), json.dumps(found)[1:-1]}:
            if form:
                self._hidden[form] = str(value)
        return found

    def _value(self, value: str | Secret) -> Any:
        return self._revealed(value) if isinstance(value, Secret) else json.loads(value)

    def _header(self, name: str, value: str | Secret) -> str:
        found = self._revealed(value).strip()
        if not found.isascii() or not found.isprintable():
            of = f"{value} holds" if isinstance(value, Secret) else "it has"
            what = f"the header `{name}` can't be sent: {of} a character that headers can't have"
            raise Mistake("HTTP_HEADER", what, at=self._at, fix="set it anew, without line breaks")
        return found

    def _sign_in(self) -> None:
        origin = self._origin
        if origin.token is not None:
            self._headers["Authorization"] = f"Bearer {self._header('Authorization', origin.token)}"
        if origin.user is not None and origin.password is not None:
            pair = f"{self._revealed(origin.user)}:{self._revealed(origin.password)}"
            coded = base64.b64encode(pair.encode()).decode()
            self._hidden[coded] = str(origin.password)
            self._headers["Authorization"] = f"Basic {coded}"

    def _check_url(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            what = f"{self._origin.url} does not hold an address of HTTP"
            raise Mistake("HTTP_ADDRESS", what, at=self._at, fix="set it to https://host/path")


def joined(base: str, link: str) -> str | None:
    """Return the address that a link in the answer of `base` leads to; None where that is none of HTTP.

    >>> joined("https://a.example/x?y=1", "?z=2"), joined("https://a.example", "ftp://b.example")
    ('https://a.example/x?z=2', None)
    """
    try:
        named, found = urlsplit(link.strip()), urljoin(base, link.strip())
        parts = urlsplit(found)
        is_sound = parts.port != 0 and parts.scheme in _PORTS and bool(parts.hostname)
    except ValueError:
        return None
    return found if is_sound and link.strip() and (bool(named.netloc) or not named.scheme) else None


def _with(url: str, params: Mapping[str, Any]) -> str:
    """Return an address with parameters; they take the place of those with the same name."""
    if not params:
        return url
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in params]
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode([*kept, *params.items()]), ""))
