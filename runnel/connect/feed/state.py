"""Store the state of a feed with the version of its table. Imports nothing heavy: every plan reads it."""

import json
from collections.abc import Mapping

from runnel.connect.feed.protocol import FeedState
from runnel.lake.diff.content_id import content_of_files
from runnel.lake.flow_state.ingest_position import STATE_PATH, ProcessedFile


def compute_content(before: str | None, mode: str, identity: str) -> str:
    """Return the content id of a table that had the content `before`, after rows of this identity were added."""
    return content_of_files(None if mode == "replace" else before, [identity])


def record_feed_state(state: FeedState, identity: str) -> ProcessedFile:
    """Return the record that stores a feed's state."""
    return ProcessedFile(STATE_PATH, 0, 0, "", identity, (), state=json.dumps(state, sort_keys=True))


def read_feed_state(processed_files: Mapping[str, ProcessedFile]) -> FeedState | None:
    """Return the feed's state from the records of its table; None if there is none."""
    state_record = processed_files.get(STATE_PATH)
    return json.loads(state_record.state) if state_record is not None and state_record.state is not None else None
