"""Read a REST API as a feed. Its state is the greatest value read (`since`), or a hash of the last response."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows
from runnel.connect.files.fetched_file import FetchedFile
from runnel.connect.http.client import ApiClient, ApiRequest, ApiResponse, Sleep
from runnel.connect.http.jsonl_writer import JsonlPartWriter, NewestRecords, hash_record
from runnel.connect.http.pagination import read_pages
from runnel.connect.http.rate_limit import parse_http_date
from runnel.connect.http.watermark import HttpWatermark
from runnel.declare.model.endpoints import Http
from runnel.declare.model.flow import Source
from runnel.model.progress import Progress

_DIGEST_MODULUS = 2**256
_DATE_PRECISION = timedelta(
    seconds=2
)  # HTTP dates have whole seconds: the resource may change again within the same second


@dataclass(frozen=True)
class _FetchedPages:
    """The records of all pages, a digest that does not depend on their order, and validators for the next request."""

    parts: tuple[FetchedFile, ...]
    digest: str
    validators: Mapping[str, str]


class HttpFeed:
    """The feed of an API. `sleep` is how it waits."""

    def __init__(self, source: Source, origin: Http, sleep: Sleep = time.sleep) -> None:
        self._source = source
        self._origin = origin
        self._sleep = sleep
        self._at = str(source.place)
        self._key = origin.key or source.key

    @property
    def mode(self) -> Literal["append", "replace", "upsert"]:
        """Return how fetched records change the table."""
        if self._key:
            return "upsert"
        return "append" if self._origin.since is not None or self._origin.append else "replace"

    def find_changes(self, state: FeedState | None, *, max_rows: int | None = None) -> FeedChanges:  # noqa: ARG002 - part of the protocol
        """Return that the API will be read; nothing if it answers that its last response is still valid."""
        with self._open_client(_ignore_progress) as client:
            display_url = client.access.display_url
            validators = self._build_validators(state or {})
            if validators:
                response = client.send(ApiRequest(headers=validators, headers_only=True))
                if response.status == 304 or _is_same_etag(
                    response.headers.get("ETag"), validators.get("If-None-Match")
                ):
                    return FeedChanges(f"{display_url} has not changed", is_empty=True)
            value = self._load_watermark(state).value if self._origin.since is not None else None
            return FeedChanges(f"asks {display_url}" + ("" if value is None else f" for what is new since {value}"))

    def fetch(
        self, state: FeedState | None, _changes: FeedChanges, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        """Read all pages and write their records into files."""
        with self._open_client(report_progress) as client:
            return self._fetch_records(client, state or {}, folder, report_progress)

    def _fetch_records(
        self, client: ApiClient, state: FeedState, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        watermark = self._load_watermark(state) if self._origin.since is not None else None
        start_value = watermark.value if watermark is not None else None
        pages = self._read_pages(client, watermark, folder, report_progress)
        if watermark is not None:
            return FetchedRows(
                pages.parts, watermark.state(), f"http:{pages.digest}:{start_value}", self.mode, self._key
            )
        if state.get("digest") == pages.digest:
            return FetchedRows((), state, f"http:{pages.digest}", "append")
        new_state = {"digest": pages.digest, "of": self._hash_request(), **pages.validators}
        identity = f"http:{pages.digest}" + ("" if self.mode == "replace" else f":{state.get('digest')}")
        return FetchedRows(pages.parts, new_state, identity, self.mode, self._key)

    def _read_pages(
        self, client: ApiClient, watermark: HttpWatermark | None, folder: Path, report_progress: Progress
    ) -> "_FetchedPages":
        start_value, watermark_field = (watermark.value, watermark.field) if watermark is not None else (None, None)
        digest_sum: int = 0
        validators: Mapping[str, str] = {}
        with (
            closing(JsonlPartWriter(folder, client.access.display_url)) as parts,
            closing(NewestRecords(self._key, watermark_field)) as newest,
        ):
            for page in read_pages(client, self._origin, start_value, self._at):
                for record in page.records:
                    digest = hash_record(record)
                    if watermark is None or watermark.accept_record(record, digest.hex()[:16]):
                        digest_sum = (digest_sum + int.from_bytes(digest)) % _DIGEST_MODULUS
                        newest.add(record, parts.count)
                        parts.add(record, page.number)
                report_progress(f"page {page.number}", parts.count, None)
                validators = _read_validators(page.response) if page.is_only_page else {}
            return _FetchedPages(parts.finish(newest.superseded), f"{digest_sum:064x}:{parts.count}", validators)

    def _load_watermark(self, state: FeedState | None) -> HttpWatermark:
        assert self._origin.since is not None
        is_strict = self.mode == "append"
        return HttpWatermark(self._origin.since[1], str(self._source.table), self._at, state or {}, is_strict=is_strict)

    def _build_validators(self, state: FeedState) -> dict[str, str]:
        """Return the headers that ask whether the last response is still valid; none if the request has changed."""
        if self._origin.since is not None or state.get("of") != self._hash_request():
            return {}
        pairs = (("If-None-Match", state.get("etag")), ("If-Modified-Since", state.get("modified")))
        return {name: value for name, value in pairs if value}

    def _hash_request(self) -> str:
        """Return a hash of the declared request; of secrets it contains only the names."""
        origin = self._origin
        parts = (origin.url, origin.params, origin.headers, origin.json, origin.method, origin.records, origin.paging)
        return hashlib.sha256(repr((*parts, origin.size, self.mode)).encode()).hexdigest()[:16]

    @contextmanager
    def _open_client(self, report_progress: Progress) -> Iterator[ApiClient]:
        client = ApiClient(self._source, self._origin, report_progress, self._sleep)
        try:
            yield client
        finally:
            client.close()


def _ignore_progress(what: str, done: int, total: int | None) -> None:
    pass


def _is_same_etag(etag: str | None, other_etag: str | None) -> bool:
    return etag is not None and other_etag is not None and etag.removeprefix("W/") == other_etag.removeprefix("W/")


def _read_validators(response: ApiResponse) -> dict[str, str]:
    """Return the ETag or modification date by which a later request asks whether a response is still valid."""
    if tag := response.headers.get("ETag"):
        return {"etag": tag}
    modified_at, sent_at = (
        parse_http_date(response.headers.get("Last-Modified", "")),
        parse_http_date(response.headers.get("Date", "")),
    )
    if modified_at is None or sent_at is None or sent_at - modified_at < _DATE_PRECISION:
        return {}
    return {"modified": response.headers["Last-Modified"]}
