"""Authenticate requests to an API.

Secrets are revealed here, sent only to the API's own host, and replaced by their names in every text for people.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, urlencode, urljoin, urlsplit, urlunsplit

from runnel.declare.model.endpoints import Http
from runnel.declare.model.flow import Source
from runnel.declare.model.secret import Secret, reveal_if_secret
from runnel.errors import Mistake

_PORTS = {"http": 80, "https": 443}


class ApiAccess:
    """The URL of an API with its headers, parameters and body."""

    def __init__(self, source: Source, origin: Http) -> None:
        """Reveal the secrets of an origin. Raises a Mistake that names the secret if one is not set."""
        self._at = str(source.place)
        self._origin = origin
        self._redactions: dict[str, str] = {}
        self.url = self._reveal(origin.url)
        self._is_secret_url = isinstance(origin.url, Secret)
        self._check_url()
        self._params = {name: self._reveal(value) for name, value in origin.params}
        self._headers = {name: self._reveal_header(name, value) for name, value in origin.headers}
        self._body = {name: self._reveal_json_value(value) for name, value in origin.json}
        self._add_authorization()

    @property
    def host(self) -> str:
        """Return the host for messages, with its port if the URL names one."""
        return str(self._origin.url) if self._is_secret_url else urlsplit(self.url).netloc

    @property
    def display_url(self) -> str:
        """Return the API's URL for messages: without the query, which may hold secrets."""
        return self.redact_url(self.url)

    def redact_url(self, url: str) -> str:
        """Return a URL for messages, without query and secrets."""
        if self._is_secret_url:
            return str(self._origin.url)
        parts = urlsplit(url)
        return self.hide_secrets(f"{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}")

    def hide_secrets(self, text: str) -> str:
        """Replace the values of secrets in a text by their names."""
        for value, name in sorted(self._redactions.items(), key=lambda redaction: -len(redaction[0])):
            text = text.replace(value, name)
        return text

    def secret_names(self) -> tuple[str, ...]:
        """Return the names of the environment variables that hold the credentials."""
        values = (self._origin.token, self._origin.user, self._origin.password, *dict(self._origin.headers).values())
        values = (*values, *dict(self._origin.params).values(), *dict(self._origin.json).values())
        return tuple(dict.fromkeys(value.name for value in values if isinstance(value, Secret)))

    def is_own_host(self, url: str) -> bool:
        """Tell whether a URL is on the API's own host and no less encrypted; only there secrets may be sent."""
        own, other = urlsplit(self.url), urlsplit(url)
        if own.hostname != other.hostname:
            return False
        ports = (own.port or _PORTS.get(own.scheme), other.port or _PORTS.get(other.scheme))
        is_same_origin = own.scheme == other.scheme and ports[0] == ports[1]
        return is_same_origin or (own.scheme == "http" and other.scheme == "https" and ports == (80, 443))

    def build_first_url(self, params: Mapping[str, Any]) -> str:
        """Return the URL of the first request with these paging parameters, which override the declared ones."""
        paging_params = {} if self._origin.method == "POST" else params
        return _replace_params(self.url, {**self._params, **paging_params})

    def resolve_next_page(self, link: str, base: str) -> str | None:
        """Return the URL of the next page, or None if the link is no HTTP URL.

        APIs behind a proxy often link to `http` although they are called by `https`; such links are corrected.
        """
        url = resolve_link(base, link)
        if url is None:
            return None
        own, parts = urlsplit(self.url), urlsplit(url)
        if own.scheme == "https" and parts.scheme == "http" and own.hostname == parts.hostname and not parts.port:
            url = urlunsplit(("https", own.netloc, parts.path, parts.query, ""))
        if not self.is_own_host(url):
            return url
        present_params = {name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)}
        secret_params = {name for name, value in self._origin.params if isinstance(value, Secret)}
        return _replace_params(url, {name: self._params[name] for name in secret_params - present_params})

    def build_headers(self, url: str) -> dict[str, str]:
        """Return the headers for a URL; another host gets no secret ones."""
        if self.is_own_host(url):
            return dict(self._headers)
        public_headers = {name for name, value in self._origin.headers if not isinstance(value, Secret)}
        return {name: value for name, value in self._headers.items() if name in public_headers}

    def build_body(self, url: str, params: Mapping[str, Any]) -> bytes | None:
        """Return the body for a URL; None unless the method is POST. Another host gets no secret fields."""
        if self._origin.method != "POST":
            return None
        secret_fields = {name for name, value in self._origin.json if isinstance(value, Secret)}
        fields = (
            self._body
            if self.is_own_host(url)
            else {name: self._body[name] for name in self._body.keys() - secret_fields}
        )
        return json.dumps({**fields, **params}).encode()

    def _reveal(self, value: str | Secret) -> str:
        if not isinstance(value, Secret):
            return value
        secret_text = reveal_if_secret(value, self._at)
        for form in {
            secret_text,
            secret_text.strip(),
            quote(secret_text, safe=""),
            quote_plus(secret_text),
            json.dumps(secret_text)[1:-1],
        }:
            if form:
                self._redactions[form] = str(value)
        return secret_text

    def _reveal_json_value(self, value: str | Secret) -> Any:
        return self._reveal(value) if isinstance(value, Secret) else json.loads(value)

    def _reveal_header(self, name: str, value: str | Secret) -> str:
        text = self._reveal(value).strip()
        if not text.isascii() or not text.isprintable():
            subject = f"{value} holds" if isinstance(value, Secret) else "it has"
            what = f"the header `{name}` can't be sent: {subject} a character that headers can't have"
            raise Mistake("HTTP_HEADER", what, at=self._at, fix="set it again, without line breaks")
        return text

    def _add_authorization(self) -> None:
        origin = self._origin
        if origin.token is not None:
            self._headers["Authorization"] = f"Bearer {self._reveal_header('Authorization', origin.token)}"
        if origin.user is not None and origin.password is not None:
            credentials = f"{self._reveal(origin.user)}:{self._reveal(origin.password)}"
            encoded = base64.b64encode(credentials.encode()).decode()
            self._redactions[encoded] = str(origin.password)
            self._headers["Authorization"] = f"Basic {encoded}"

    def _check_url(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            what = f"{self._origin.url} does not hold an HTTP address"
            raise Mistake("HTTP_ADDRESS", what, at=self._at, fix="set it to https://host/path")


def resolve_link(base: str, link: str) -> str | None:
    """Return the URL that a link in the response of `base` points to; None if it is no HTTP URL.

    >>> resolve_link("https://a.example/x?y=1", "?z=2"), resolve_link("https://a.example", "ftp://b.example")
    ('https://a.example/x?z=2', None)
    """
    try:
        link_parts, url = urlsplit(link.strip()), urljoin(base, link.strip())
        parts = urlsplit(url)
        is_valid = parts.port != 0 and parts.scheme in _PORTS and bool(parts.hostname)
    except ValueError:
        return None
    return url if is_valid and link.strip() and (bool(link_parts.netloc) or not link_parts.scheme) else None


def _replace_params(url: str, params: Mapping[str, Any]) -> str:
    """Return a URL with these query parameters; they replace parameters of the same name."""
    if not params:
        return url
    parts = urlsplit(url)
    other_params = [
        (name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in params
    ]
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode([*other_params, *params.items()]), ""))
