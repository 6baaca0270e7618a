"""Ask each source of a project once per command what is new: an answer may cost a table scan or a file listing."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Files, Manual

if TYPE_CHECKING:
    from runnel.connect.feed.protocol import FeedChanges
    from runnel.connect.ingest.detect.file_changes import FileChanges
    from runnel.declare.model.flow import Flow
    from runnel.lake.flow_state.inbox_level import InboxLevelReader
    from runnel.lake.flow_state.ingest_position import ProcessedFile
    from runnel.names import TableName


class SourceAnswers:
    """The answers of sources, cached for one command."""

    def __init__(self, flow: "Flow") -> None:
        self._flow = flow
        self._feed_changes: dict[tuple[TableName, str | None], FeedChanges | None] = {}
        self._file_changes: dict[tuple[TableName, str], FileChanges | None] = {}

    def file_changes(
        self, table: "TableName", commit: str, read_changes: "Callable[[], FileChanges | None]"
    ) -> "FileChanges | None":
        """Return how the files of a source changed since its table at a commit was written."""
        if (table, commit) not in self._file_changes:
            self._file_changes[table, commit] = read_changes()
        return self._file_changes[table, commit]

    def feed_changes(
        self, table: "TableName", read_position: "Callable[[], dict[str, ProcessedFile]]", levels: "InboxLevelReader"
    ) -> "FeedChanges | None":
        """Return what a source has that its table lacks; None for a source of files or one that is filled by hand.

        `levels` are the levels of the lake's inboxes, which pushed events are read from.
        """
        source = self._flow.sources[table]
        if isinstance(source.origin, Files | Manual):
            return None
        from runnel.connect.feed.state import read_feed_state
        from runnel.connect.feed_registry import open_feed
        from runnel.lake.flow_state.ingest_position import STATE_PATH

        position = read_position()
        key = (table, position[STATE_PATH].state if STATE_PATH in position else None)
        if key not in self._feed_changes:
            feed = open_feed(source, self._flow.root, levels)
            self._feed_changes[key] = feed.find_changes(read_feed_state(position)) if feed is not None else None
        return self._feed_changes[key]
