"""Follow a run another way when the first one is lost."""

from collections.abc import Callable, Generator
from contextlib import suppress

from runnel.errors import Unreachable
from runnel.project.following.run_follower import EventSource, FollowedItem, NumberedEvent


class FallbackEventSource:
    """A source of events that is replaced by the one that `open_fallback` returns once it is Unreachable."""

    def __init__(self, source: EventSource, open_fallback: Callable[[], EventSource]) -> None:
        self._source, self._open_fallback = source, open_fallback
        self._fallback: EventSource | None = None

    def follow(self, after: int) -> Generator[FollowedItem, None, None]:
        """Yield events and the end, each once."""
        if self._fallback is None:
            with suppress(Unreachable):
                for item in self._source.follow(after):
                    after = item.number if isinstance(item, NumberedEvent) else after
                    yield item
                return
        yield from self._get_fallback().follow(after)

    def cancel(self) -> None:
        """Cancel the run."""
        if self._fallback is None:
            with suppress(Unreachable):
                self._source.cancel()
                return
        self._get_fallback().cancel()

    def _get_fallback(self) -> EventSource:
        if self._fallback is None:
            self._fallback = self._open_fallback()
        return self._fallback
