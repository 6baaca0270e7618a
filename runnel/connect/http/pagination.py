"""Read the pages of an API. Pagination that would never end is an error, not an endless loop."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runnel.connect.http.client import ApiClient, ApiRequest, ApiResponse
from runnel.connect.http.record_extraction import ResponseReader, find_path
from runnel.declare.model.endpoints import Http
from runnel.errors import Mistake, find_nearest


@dataclass(frozen=True)
class ApiPage:
    """A page. `is_only_page` tells that there is no other page, and that the response itself says so."""

    number: int
    records: list[Any]
    response: ApiResponse
    is_only_page: bool


def read_pages(client: ApiClient, origin: Http, since: Any, at: str) -> Iterator[ApiPage]:
    """Yield all pages, from the first on. With a value of `since`, request only records from that value on."""
    request: ApiRequest | None = ApiRequest(_base_params(origin, since))
    pagination = _Pagination(client, origin, since, at)
    number = 0
    while request is not None:
        number += 1
        if number > origin.most_pages:
            raise pagination.endless_error(
                f"{client.access.display_url} has more than {origin.most_pages:,} pages", "raise max_pages"
            )
        try:
            response = client.send(request)
        except Mistake as mistake:
            # Some APIs answer 404 after the last page.
            if mistake.code == "HTTP_NOT_FOUND" and origin.paging == "page" and number > 1:
                return
            raise
        document = pagination.reader.read_document(response)
        records = pagination.reader.find_records(document, origin.records)
        request = pagination.build_next_request(number, document, records, response)
        marks_last_page = origin.paging in ("none", "cursor") or (origin.paging == "link" and origin.next is not None)
        yield ApiPage(
            number, records, response, number == 1 and request is None and (marks_last_page or origin.more is not None)
        )


def _base_params(origin: Http, since: Any) -> dict[str, Any]:
    """Return the parameters of the first request."""
    params: dict[str, Any] = dict([origin.size] if origin.size is not None else [])
    if origin.since is not None and since is not None:
        params[origin.since[0]] = since
    if origin.paging == "page" and origin.param is not None:
        params[origin.param] = origin.first
    return params


class _Pagination:
    """The state of pagination: offset, links and cursors so far, to build the next request and detect endless loops."""

    def __init__(self, client: ApiClient, origin: Http, since: Any, at: str) -> None:
        self._client = client
        self._origin = origin
        self._since = since
        self._at = at
        self._offset = 0
        self._seen_pages: set[str] = set()
        self._previous_records: list[Any] = []
        self.reader = ResponseReader(client.access, at)

    def build_next_request(
        self, number: int, document: Any, records: list[Any], response: ApiResponse
    ) -> ApiRequest | None:
        """Return the request for the next page; None after the last page."""
        origin = self._origin
        if origin.paging == "none":
            return None
        if origin.paging == "link":
            link = self._find_next_link(document, response)
            return (
                None
                if link is None
                else ApiRequest(
                    _base_params(origin, self._since), link=(self._refuse_repeated_page(link), response.url)
                )
            )
        if origin.paging == "cursor":
            cursor = self._find_cursor(number, document, records)
            return None if cursor is None else self._build_request(cursor)
        if not records or self._is_last_page(document):
            return None
        self._refuse_same_records(number, records)
        self._offset += len(records)
        return self._build_request(origin.first + number if origin.paging == "page" else self._offset)

    def _build_request(self, value: Any) -> ApiRequest:
        assert self._origin.param is not None
        return ApiRequest({**_base_params(self._origin, self._since), self._origin.param: value})

    def _is_last_page(self, document: Any) -> bool:
        path = self._origin.more
        if path is None:
            return False
        exists, value = find_path(document, path)
        if not exists:
            raise self._missing_path_error("more", path, document)
        return not value or value == "false"

    def _find_next_link(self, document: Any, response: ApiResponse) -> str | None:
        path = self._origin.next
        if path is None:
            return _find_next_in_headers(response)
        exists, value = find_path(document, path)
        if not exists and self._is_typo(path, document):
            raise self._missing_path_error("next", path, document)
        if value and not isinstance(value, str):
            what = f"`{path}` in an answer of {self._client.access.display_url} is not an address"
            raise Mistake("HTTP_PAGING", what, at=self._at, fix='for a cursor, write paging="cursor", cursor=...')
        return value or None

    def _find_cursor(self, number: int, document: Any, records: list[Any]) -> Any:
        path = self._origin.cursor
        assert path is not None
        exists, value = find_path(document, path)
        size = self._origin.size
        is_full_page = size is not None and len(records) >= size[1]
        if not exists and number == 1 and (is_full_page or self._is_typo(path, document)):
            raise self._missing_path_error("cursor", path, document)
        if value is None or value is False or value == "":
            return None
        if isinstance(value, dict | list):
            what = f"`{path}` in an answer of {self._client.access.display_url} is not a text or number"
            raise Mistake("HTTP_PAGING", what, at=self._at, fix="name the path of the next cursor itself: cursor=...")
        self._refuse_repeated_page(str(value))
        return value

    def _refuse_repeated_page(self, text: str) -> str:
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:24]
        if digest in self._seen_pages:
            what = f"{self._client.access.display_url} repeats pages: it names a next page that was read already"
            raise self.endless_error(
                what, "check that `param` is the parameter of the API, or report this to its operator"
            )
        self._seen_pages.add(digest)
        return text

    def _refuse_same_records(self, number: int, records: list[Any]) -> None:
        if records == self._previous_records:
            param = self._origin.param
            what = f"{self._client.access.display_url} has the same records on page {number} as on the page before"
            raise self.endless_error(
                what, f"check that it takes `{param}`, or name the field that says whether there is more: more=..."
            )
        self._previous_records = records

    def _is_typo(self, path: str, document: Any) -> bool:
        """Tell whether a missing key resembles an existing one; if not, this may simply be the last page."""
        parent, _, name = path.rpartition(".")
        parent_value = find_path(document, parent)[1] if parent else document
        return isinstance(parent_value, dict) and find_nearest(name, parent_value) is not None

    def _missing_path_error(self, option: str, path: str, document: Any) -> Mistake:
        keys_text = self.reader.describe_keys(document, path)
        what = f"an answer of {self._client.access.display_url} has no `{path}`; {keys_text}"
        return Mistake("HTTP_PAGING", what, at=self._at, fix=f"name its path: {option}=...")

    def endless_error(self, what: str, fix: str) -> Mistake:
        """Return the error for pagination that would never end."""
        return Mistake("HTTP_ENDLESS", what, at=self._at, fix=fix)


def _find_next_in_headers(response: ApiResponse) -> str | None:
    """Return the URL with rel=next in the Link header."""
    from requests.utils import parse_header_links

    links = parse_header_links(response.headers.get("Link", ""))
    return next((link["url"] for link in links if "next" in link.get("rel", "").lower().split()), None)
