"""What is new since a state: the spans to read, and the state afterwards. Pure, given what Kafka has."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runnel.connect.feed.protocol import State
from runnel.connect.kafka.offset_range import Span
from runnel.connect.kafka.offsets import Place, Topics
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source
from runnel.errors import RunnelError

_MOST_TOLD = 5


@dataclass(frozen=True)
class Since:
    """What there is to read, none of it empty, and what is lost: per partition, how many messages."""

    spans: tuple[Span, ...]
    after: dict[str, Any]
    lost: Mapping[Place, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return how many offsets there are to read."""
        return sum(span.count for span in self.spans)

    def capped(self, most: int | None) -> "Since":
        """Return the same with about `most` offsets to read, the rest being left for the next time."""
        if most is None or self.count <= most:
            return self
        each = max(most // len(self.spans), 1)
        spans = tuple(replace(span, end=min(span.end, span.start + each)) for span in self.spans)
        offsets = {topic: dict(partitions) for topic, partitions in self.after["offsets"].items()}
        for span in spans:
            offsets[span.topic][str(span.partition)] = span.end
        return replace(self, spans=spans, after={**self.after, "offsets": offsets})


def known_offsets(state: State | None) -> dict[str, dict[str, int]]:
    """Return what a state has, by topic and partition."""
    return dict((state or {}).get("offsets", {}))


def since(state: State | None, found: Topics, starts: Mapping[Place, int]) -> Since:
    """Return what is new; `starts` are the offsets for partitions of topics that the state lacks."""
    known = known_offsets(state)
    spans, lost, after = [], {}, {topic: dict(partitions) for topic, partitions in known.items()}
    for place, high in sorted(found.high.items()):
        topic, number = place
        low = found.low[place]
        start = known[topic].get(str(number), low) if topic in known else starts[place]
        if start < low:
            lost[place] = low - start
        span = Span(topic, number, max(start, low), high)
        after.setdefault(topic, {})[str(number)] = span.end
        if span.count:
            spans.append(span)
    ids = {**(state or {}).get("ids", {}), **found.ids}
    return Since(tuple(spans), {"offsets": after, "ids": ids}, lost)


def refuse_reset(source: Source, state: State | None, found: Topics) -> None:
    """Raise where a topic is not the one that was read: its offsets mean other messages now."""
    ids: Mapping[str, str] = (state or {}).get("ids", {})
    for topic, partitions in known_offsets(state).items():
        behind = [
            f"{topic}[{number}] ends at {found.high[topic, int(number)]:,}, but was read up to {offset:,}"
            for number, offset in partitions.items()
            if (topic, int(number)) in found.high and found.high[topic, int(number)] < offset
        ]
        is_other = topic in found.ids and ids.get(topic, found.ids[topic]) != found.ids[topic]
        if behind or is_other:
            why = f": {'; '.join(behind[:_MOST_TOLD])}" if behind else ", so its offsets mean other messages now"
            what = f"the topic `{topic}` was deleted and made anew since it was read{why}"
            fix = (
                f"runnel rewind {source.table} --to REF, a commit before its first load, reads the new topic from its "
                "beginning without the old rows; or declare another table for it"
            )
            raise RunnelError("SOURCE_KAFKA_RESET", what, at=str(source.place), fix=fix)


def refuse_lost(source: Source, origin: Kafka, lost: Mapping[Place, int]) -> None:
    """Raise where messages are gone that were never read, unless they may be."""
    if not lost or origin.expired == "skip":
        return
    fix = (
        'go on with what is left: rn.kafka(..., expired="skip"); or start over: '
        f"runnel rewind {source.table} --to REF, a commit before its first load, reads all that is still there"
    )
    raise RunnelError("SOURCE_KAFKA_EXPIRED", f"{told_lost(lost)}", at=str(source.place), fix=fix)


def told_lost(lost: Mapping[Place, int]) -> str:
    """Return how many messages of which partitions are gone.

    >>> told_lost({("clicks", 0): 1200})
    '1,200 messages expired before they were read: clicks[0] lacks 1,200'
    """
    count = sum(lost.values())
    each = [f"{topic}[{number}] lacks {gone:,}" for (topic, number), gone in lost.items()]
    more = f" and {len(each) - _MOST_TOLD} more partitions" if len(each) > _MOST_TOLD else ""
    return f"{count:,} {_plural('message', count)} expired before they were read: {', '.join(each[:_MOST_TOLD])}{more}"


def told(new: Since, found: Topics) -> str:
    """Return for people what is new."""
    topics = list(dict.fromkeys(span.topic for span in new.spans))
    if not topics:
        text = f"nothing to read in {_names(sorted(found.ids))} yet"
    else:
        parts = f"{len(new.spans):,} {_plural('partition', len(new.spans))}"
        text = f"{new.count:,} new {_plural('message', new.count)} in {parts} of {_names(topics)}"
    return f"{text}; {told_lost(new.lost)}" if new.lost else text


def _names(topics: list[str]) -> str:
    return ", ".join(topics) if len(topics) <= 3 else f"{len(topics)} topics"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
