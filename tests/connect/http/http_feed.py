"""The feed of an API, asked without a lake: what it fetches, how it waits, and what it says."""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runnel.connect.feed.protocol import FeedChanges, FetchedRows
from runnel.connect.http.feed import HttpFeed
from runnel.declare.model.endpoints import Http
from runnel.declare.model.flow import Source
from runnel.declare.model.secret import Secret
from runnel.declare.model.source_location import SourceLocation
from runnel.errors import RunnelError
from runnel.names import TableName


class Poll:
    """Polls an API, and does not wait: the pauses that it would make are kept."""

    def __init__(self, url: str | Secret, pause: Callable[[float], object] | None = None, **options: Any) -> None:
        """Take the fields of Http as options; `pause` waits after all."""
        origin = Http(url, **options)
        self.pauses: list[float] = []
        self.told: list[str] = []
        place = SourceLocation("flows/orders.py", 3)
        self._feed = HttpFeed(Source(TableName("ods", "orders"), origin, place), origin, pause or self.pauses.append)

    def news(self, state: Mapping[str, Any] | None = None) -> FeedChanges:
        """Ask what is new."""
        return self._feed.find_changes(state)

    def fetched(self, state: Mapping[str, Any] | None = None) -> tuple[list[Any], FetchedRows]:
        """Return the records that a poll brings, and all else that it says."""
        with tempfile.TemporaryDirectory() as folder:
            found = self._feed.fetch(state, FeedChanges(""), Path(folder), lambda what, *_: self.told.append(what))
            lines = [line for part in found.parts for line in part.path.read_text().splitlines()]
        return [json.loads(line) for line in lines], found

    def ids(self, state: Mapping[str, Any] | None = None) -> list[int]:
        """Return the ids of what a poll brings."""
        return [record["id"] for record in self.fetched(state)[0]]

    def error(self) -> RunnelError:
        """Return the error that a poll ends with."""
        try:
            self.fetched()
        except RunnelError as error:
            assert error.at == "flows/orders.py:3" and error.fix
            return error
        raise AssertionError("there was no error")
