"""A REST API as a feed. Its state says how far it was read (`since`), or what its last answer was."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from runnel.connect.feed.protocol import Fetched, News, Part, Progress, State
from runnel.connect.http.client import Answer, Ask, Client, Pause
from runnel.connect.http.jsonl_writer import Newest, Parts, digest_of
from runnel.connect.http.pagination import walk
from runnel.connect.http.rate_limit import when
from runnel.connect.http.watermark import Since
from runnel.declare.model.endpoints import Http
from runnel.declare.model.flow import Source

_WHOLE = 2**256
_SURE = timedelta(seconds=2)  # a date of a change has whole seconds: there may be a later one within


@dataclass(frozen=True)
class _Walked:
    """What a walk brought: records, what they are in whatever order, and by what to ask whether that is so still."""

    parts: tuple[Part, ...]
    digest: str
    valid: Mapping[str, str]


class HttpFeed:
    """The feed of an API. `pause` is how it waits."""

    def __init__(self, source: Source, origin: Http, pause: Pause = time.sleep) -> None:
        self._source = source
        self._origin = origin
        self._pause = pause
        self._at = str(source.place)
        self._key = origin.key or source.key

    @property
    def mode(self) -> Literal["append", "replace", "upsert"]:
        """Return what records do to those that are there."""
        if self._key:
            return "upsert"
        return "append" if self._origin.since is not None or self._origin.append else "replace"

    def news(self, state: State | None) -> News:
        """Return that the API will be asked; nothing where its last answer is told to be valid still."""
        with self._client(_untold) as client:
            told = client.access.told
            asked = self._validators(state or {})
            if asked:
                answer = client.ask(Ask(headers=asked, is_glance=True))
                if answer.status == 304 or _same_tag(answer.headers.get("ETag"), asked.get("If-None-Match")):
                    return News(f"{told} has not changed", is_empty=True)
            value = self._since(state).value if self._origin.since is not None else None
            return News(f"asks {told}" + ("" if value is None else f" for what is new since {value}"))

    def fetch(self, state: State | None, news: News, folder: Path, tell: Progress) -> Fetched:
        """Walk all pages and keep their records in files."""
        with self._client(tell) as client:
            return self._fetched(client, state or {}, folder, tell)

    def _fetched(self, client: Client, state: State, folder: Path, tell: Progress) -> Fetched:
        since = self._since(state) if self._origin.since is not None else None
        start = since.value if since is not None else None
        found = self._walked(client, since, folder, tell)
        if since is not None:
            return Fetched(found.parts, since.state(), f"http:{found.digest}:{start}", self.mode, self._key)
        if state.get("digest") == found.digest:
            return Fetched((), state, f"http:{found.digest}", "append")
        after = {"digest": found.digest, "of": self._question(), **found.valid}
        identity = f"http:{found.digest}" + ("" if self.mode == "replace" else f":{state.get('digest')}")
        return Fetched(found.parts, after, identity, self.mode, self._key)

    def _walked(self, client: Client, since: Since | None, folder: Path, tell: Progress) -> "_Walked":
        start, by = (since.value, since.field) if since is not None else (None, None)
        total: int = 0
        valid: Mapping[str, str] = {}
        with closing(Parts(folder, client.access.told)) as parts, closing(Newest(self._key, by)) as newest:
            for page in walk(client, self._origin, start, self._at):
                for record in page.records:
                    digest = digest_of(record)
                    if since is None or since.takes(record, digest.hex()[:16]):
                        total = (total + int.from_bytes(digest)) % _WHOLE
                        newest.add(record, parts.count)
                        parts.add(record, page.number)
                tell(f"page {page.number}", parts.count, None)
                valid = _valid(page.answer) if page.is_whole else {}
            return _Walked(parts.made(newest.losers), f"{total:064x}:{parts.count}", valid)

    def _since(self, state: State | None) -> Since:
        assert self._origin.since is not None
        strict = self.mode == "append"
        return Since(self._origin.since[1], str(self._source.table), self._at, state or {}, is_strict=strict)

    def _validators(self, state: State) -> dict[str, str]:
        """Return the headers that ask whether the last answer is valid still; none where it may not be all."""
        if self._origin.since is not None or state.get("of") != self._question():
            return {}
        pairs = (("If-None-Match", state.get("etag")), ("If-Modified-Since", state.get("modified")))
        return {name: value for name, value in pairs if value}

    def _question(self) -> str:
        """Return what is asked, as a hash: of secrets only their names."""
        origin = self._origin
        parts = (origin.url, origin.params, origin.headers, origin.json, origin.method, origin.records, origin.paging)
        return hashlib.sha256(repr((*parts, origin.size, self.mode)).encode()).hexdigest()[:16]

    @contextmanager
    def _client(self, tell: Progress) -> Iterator[Client]:
        client = Client(self._source, self._origin, tell, self._pause)
        try:
            yield client
        finally:
            client.close()


def _untold(what: str, done: int, total: int | None) -> None:
    pass


def _same_tag(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one.removeprefix("W/") == other.removeprefix("W/")


def _valid(answer: Answer) -> dict[str, str]:
    """Return what to ask with whether an answer is valid still."""
    if tag := answer.headers.get("ETag"):
        return {"etag": tag}
    changed, sent = when(answer.headers.get("Last-Modified", "")), when(answer.headers.get("Date", ""))
    if changed is None or sent is None or sent - changed < _SURE:
        return {}
    return {"modified": answer.headers["Last-Modified"]}
