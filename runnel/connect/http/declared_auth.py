"""Keep `requests` from replacing declared credentials by those that `~/.netrc` has for the host."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import requests


def use_declared_headers(request: "requests.PreparedRequest") -> "requests.PreparedRequest":
    """Return a request as it is; as `auth=` of a request or session, it means that `~/.netrc` is not read."""
    return request
