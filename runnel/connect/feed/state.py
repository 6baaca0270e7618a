"""The position of a feed: its state, kept with the version of its table. Imports nothing heavy: every plan asks."""

import json
from collections.abc import Mapping

from runnel.connect.feed.protocol import State
from runnel.lake.diff.content_id import of_files
from runnel.lake.flow_state.ingest_position import STATE, Seen


def content_after(before: str | None, mode: str, identity: str) -> str:
    """Return the content of a table that had `before` once rows of this identity have come."""
    return of_files(None if mode == "replace" else before, [identity])


def seen_of(state: State, identity: str) -> Seen:
    """Return the position that goes with a state."""
    return Seen(STATE, 0, 0, "", identity, (), state=json.dumps(state, sort_keys=True))


def state_of(seen: Mapping[str, Seen]) -> State | None:
    """Return the state that a position holds."""
    found = seen.get(STATE)
    return json.loads(found.state) if found is not None and found.state is not None else None
