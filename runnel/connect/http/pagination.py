"""Walk the pages of an API. A walk that would never end is an error, not a loop."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runnel.connect.http.client import Answer, Ask, Client
from runnel.connect.http.record_extraction import Reading, look
from runnel.declare.model.endpoints import Http
from runnel.errors import Mistake, nearest


@dataclass(frozen=True)
class Page:
    """A page. `is_whole` tells that the walk is this one answer, and that its own text says so."""

    number: int
    records: list[Any]
    answer: Answer
    is_whole: bool


def walk(client: Client, origin: Http, since: Any, at: str) -> Iterator[Page]:
    """Yield all pages, from the first on. Only what is `since` a value is asked for, where that is given."""
    ask: Ask | None = Ask(_fixed(origin, since))
    walked = _Walk(client, origin, since, at)
    number = 0
    while ask is not None:
        number += 1
        if number > origin.most_pages:
            raise walked.endless(f"{client.access.told} has more than {origin.most_pages:,} pages", "raise max_pages")
        try:
            answer = client.ask(ask)
        except Mistake as mistake:
            # Some APIs have no page after the last.
            if mistake.code == "HTTP_NOT_FOUND" and origin.paging == "page" and number > 1:
                return
            raise
        document = walked.reading.document(answer)
        records = walked.reading.records(document, origin.records)
        ask = walked.following(number, document, records, answer)
        says = origin.paging in ("none", "cursor") or (origin.paging == "link" and origin.next is not None)
        yield Page(number, records, answer, number == 1 and ask is None and (says or origin.more is not None))


def _fixed(origin: Http, since: Any) -> dict[str, Any]:
    """Return the parameters of the first request."""
    found: dict[str, Any] = dict([origin.size] if origin.size is not None else [])
    if origin.since is not None and since is not None:
        found[origin.since[0]] = since
    if origin.paging == "page" and origin.param is not None:
        found[origin.param] = origin.first
    return found


class _Walk:
    """What is known of the pages so far."""

    def __init__(self, client: Client, origin: Http, since: Any, at: str) -> None:
        self._client = client
        self._origin = origin
        self._since = since
        self._at = at
        self._offset = 0
        self._seen: set[str] = set()
        self._before: list[Any] = []
        self.reading = Reading(client.access, at)

    def following(self, number: int, document: Any, records: list[Any], answer: Answer) -> Ask | None:
        """Return how to ask for the next page; None after the last."""
        origin = self._origin
        if origin.paging == "none":
            return None
        if origin.paging == "link":
            link = self._link(document, answer)
            return None if link is None else Ask(_fixed(origin, self._since), link=(self._new(link), answer.url))
        if origin.paging == "cursor":
            cursor = self._cursor(number, document, records)
            return None if cursor is None else self._with(cursor)
        if not records or self._is_last(document):
            return None
        self._differs(number, records)
        self._offset += len(records)
        return self._with(origin.first + number if origin.paging == "page" else self._offset)

    def _with(self, value: Any) -> Ask:
        assert self._origin.param is not None
        return Ask({**_fixed(self._origin, self._since), self._origin.param: value})

    def _is_last(self, document: Any) -> bool:
        path = self._origin.more
        if path is None:
            return False
        is_there, value = look(document, path)
        if not is_there:
            raise self._lacks("more", path, document)
        return not value or value == "false"

    def _link(self, document: Any, answer: Answer) -> str | None:
        path = self._origin.next
        if path is None:
            return _next_of(answer)
        is_there, value = look(document, path)
        if not is_there and self._is_typo(path, document):
            raise self._lacks("next", path, document)
        if value and not isinstance(value, str):
            what = f"`{path}` in an answer of {self._client.access.told} is no address"
            raise Mistake("HTTP_PAGING", what, at=self._at, fix='of a cursor write paging="cursor", cursor=...')
        return value or None

    def _cursor(self, number: int, document: Any, records: list[Any]) -> Any:
        path = self._origin.cursor
        assert path is not None
        is_there, value = look(document, path)
        size = self._origin.size
        is_full = size is not None and len(records) >= size[1]
        if not is_there and number == 1 and (is_full or self._is_typo(path, document)):
            raise self._lacks("cursor", path, document)
        if value is None or value is False or value == "":
            return None
        if isinstance(value, dict | list):
            what = f"`{path}` in an answer of {self._client.access.told} is no text or number"
            raise Mistake("HTTP_PAGING", what, at=self._at, fix="say where the next cursor itself stands: cursor=...")
        self._new(str(value))
        return value

    def _new(self, text: str) -> str:
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:24]
        if digest in self._seen:
            what = f"{self._client.access.told} goes in circles: it names a next page that was read already"
            raise self.endless(what, "see whether `param` is what the API takes, or tell who runs it")
        self._seen.add(digest)
        return text

    def _differs(self, number: int, records: list[Any]) -> None:
        if records == self._before:
            param = self._origin.param
            what = f"{self._client.access.told} has the same records on page {number} as on the page before"
            raise self.endless(what, f"see whether it takes `{param}`, or say what tells that there is more: more=...")
        self._before = records

    def _is_typo(self, path: str, document: Any) -> bool:
        """Tell whether a key that is not there looks like one that is: else it may just be the last page."""
        parent, _, name = path.rpartition(".")
        inside = look(document, parent)[1] if parent else document
        return isinstance(inside, dict) and nearest(name, inside) is not None

    def _lacks(self, option: str, path: str, document: Any) -> Mistake:
        told = self.reading.keys(document, path)
        what = f"an answer of {self._client.access.told} has no `{path}`; {told}"
        return Mistake("HTTP_PAGING", what, at=self._at, fix=f"say where it stands: {option}=...")

    def endless(self, what: str, fix: str) -> Mistake:
        """Return the mistake of a walk that would not end."""
        return Mistake("HTTP_ENDLESS", what, at=self._at, fix=fix)


def _next_of(answer: Answer) -> str | None:
    """Return the address with rel=next in the header Link."""
    from requests.utils import parse_header_links

    links = parse_header_links(answer.headers.get("Link", ""))
    return next((one["url"] for one in links if "next" in one.get("rel", "").lower().split()), None)
