"""Messages that Kafka no longer has when they are read: they expired since they were announced, or the topic is new."""

import hashlib
from collections.abc import Mapping

from runnel.connect.kafka.client import Client
from runnel.connect.kafka.offset_plan import refuse_lost, refuse_reset, told_lost
from runnel.connect.kafka.offset_range import Span
from runnel.connect.kafka.offsets import Place, Topics, gone, ids_of, look
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source


class Losses:
    """What a reading lost. `ids` are of the topics that were announced, `before` is what was lost already then."""

    def __init__(
        self, source: Source, origin: Kafka, client: Client, ids: Mapping[str, str], before: Mapping[Place, int]
    ) -> None:
        self._source = source
        self._origin = origin
        self._client = client
        self._ids = ids
        self._before = before
        self._since: dict[Place, int] = {}

    def missed(self, span: Span, at: int) -> int:
        """Return from where to read on in a span, whose offset `at` is not there; raises where it must not go on."""
        place = (span.topic, span.partition)
        found = look(self._client, self._client.admin(), self._origin)
        read = {"offsets": {span.topic: {str(span.partition): at}}, "ids": self._ids}
        refuse_reset(self._source, read, found)
        if place not in found.low:
            raise gone(self._client, span.topic)
        low = min(found.low[place], span.end)
        if low > at:
            self._since[place] = self._since.get(place, 0) + low - at
            refuse_lost(self._source, self._origin, self._since)
        return max(at, low)

    def refuse_other(self, topics: set[str]) -> None:
        """Raise where topics are others than those that were announced: then other messages were read."""
        found = Topics("", ids_of(self._client, self._client.admin(), sorted(topics)), {}, {})
        refuse_reset(self._source, {"offsets": {topic: {} for topic in topics}, "ids": self._ids}, found)

    def identity(self, announced: str) -> str:
        """Return what the rows are, given what those are that were announced."""
        if not self._since:
            return announced
        return f"{announced}:{hashlib.sha256(repr(sorted(self._since.items())).encode()).hexdigest()[:16]}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what is lost, for people."""
        places = sorted({*self._before, *self._since})
        lost = {place: self._before.get(place, 0) + self._since.get(place, 0) for place in places}
        return (told_lost(lost),) if lost else ()
