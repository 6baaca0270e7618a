"""The feed of topics of Kafka: what is there until now, from where the last run ended. Its state is offsets."""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.feed.protocol import Fetched, News, Progress, State
from runnel.connect.kafka.bad_messages import Bad
from runnel.connect.kafka.client import Client
from runnel.connect.kafka.consumer import consume
from runnel.connect.kafka.expired_messages import Losses
from runnel.connect.kafka.message_files import files_of
from runnel.connect.kafka.offset_plan import Since, known_offsets, refuse_lost, refuse_reset, since, told
from runnel.connect.kafka.offset_range import Span
from runnel.connect.kafka.offsets import Place, Topics, at_time, look
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from runnel.connect.kafka.message import Message


class KafkaFeed:
    """Topics of Kafka. `root` is the project's folder, below which the schemas of Avro lie.

    At most about `most` messages are announced at a time, if that is set. Connections are kept for as long as it is.
    """

    most: int | None = None

    def __init__(self, source: Source, origin: Kafka, root: Path) -> None:
        self._source = source
        self._origin = origin
        self._root = root

    def news(self, state: State | None) -> News:
        """Return how many messages came since a state. Reads none of them."""
        client, admin = self._client, self._admin
        found = look(client, admin, self._origin)
        client.calm()
        refuse_reset(self._source, state, found)
        fresh = [place for place in found.high if place[0] not in known_offsets(state)]
        starts = self._starts(fresh, found, is_first=state is None)
        if self._origin.start not in ("earliest", "latest") and fresh:
            timed = at_time(client, admin, fresh, self._origin.start)
            starts = {place: offset if offset >= 0 else found.high[place] for place, offset in timed.items()}
        new = since(state, found, starts).capped(self.most)
        refuse_lost(self._source, self._origin, new.lost)
        if state is not None and new.after == dict(state):
            return News("no new messages", is_empty=True)
        lost = [[*place, count] for place, count in new.lost.items()]
        until = {"spans": [[*vars(span).values()] for span in new.spans], "after": new.after, "lost": lost}
        return News(told(new, found), until=until, rows=new.count, identity=self._identity(new, found))

    def fetch(self, state: State | None, news: News, folder: Path, tell: Progress) -> Fetched:
        """Read exactly the messages that were announced; of those that expired since, by the source's policy."""
        assert news.until is not None and news.identity is not None
        spans = [Span(*values) for values in news.until["spans"]]
        bad = Bad(self._source)
        client, came_at = self._client, list[int]()
        before = {(topic, number): count for topic, number, count in news.until["lost"]}
        losses = Losses(self._source, self._origin, client, news.until["after"]["ids"], before)
        files = files_of(self._source, self._origin, self._root, folder, bad, len(spans))
        writers = {span: files.of(span) for span in spans}

        def take(span: Span, messages: "list[Message]") -> None:
            came_at.append(messages[0].timestamp()[1])
            writers[span].take(messages)

        if spans:
            consume(client, spans, take, losses.missed, tell)
            losses.refuse_other({span.topic for span in spans})
        parts = [part for writer in writers.values() for part in writer.close()]
        bad.refuse()
        made = tuple(parts or (files.nothing() if state is None else ()))
        identity = losses.identity(news.identity)
        oldest_at = min(came_at) / 1000 if came_at else None
        after = news.until["after"]
        return Fetched(made, after, identity, bad=bad.rows, warnings=losses.warnings, oldest_at=oldest_at)

    @cached_property
    def _client(self) -> Client:
        return Client(self._origin, str(self._source.place))

    @cached_property
    def _admin(self) -> "AdminClient":
        return self._client.admin()

    def _starts(self, fresh: list[Place], found: Topics, *, is_first: bool) -> Mapping[Place, int]:
        """Return where topics start that no state has. What came to fit a pattern since is new from its beginning."""
        is_last = self._origin.start == "latest" and (is_first or self._origin.pattern is None)
        return {place: (found.high if is_last else found.low)[place] for place in fresh}

    def _identity(self, new: Since, found: Topics) -> str:
        """Return what the rows are: these messages of these topics, read this way."""
        origin = self._origin
        read = [origin.format, origin.avro, origin.wire, origin.include, repr(origin.schema), self._source.partition]
        messages = [[found.ids[span.topic], *vars(span).values()] for span in new.spans]
        text = json.dumps([found.cluster, messages, read])
        return f"kafka:{hashlib.sha256(text.encode()).hexdigest()}"
