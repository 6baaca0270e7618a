"""Ask the sources of a project what is new, each once in a command: to answer may cost them a scan or a listing."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Files, Manual

if TYPE_CHECKING:
    from runnel.connect.feed.protocol import News
    from runnel.connect.ingest.detect.file_changes import Found
    from runnel.declare.model.flow import Flow
    from runnel.lake.flow_state.inbox_level import Levels
    from runnel.lake.flow_state.ingest_position import Seen
    from runnel.names import TableName


class Asked:
    """What sources said in the course of one command."""

    def __init__(self, flow: "Flow") -> None:
        self._flow = flow
        self._known: dict[tuple[TableName, str | None], News | None] = {}
        self._found: dict[tuple[TableName, str], Found | None] = {}

    def files(self, table: "TableName", commit: str, look: "Callable[[], Found | None]") -> "Found | None":
        """Return what the files of a source mean for its table at a commit."""
        if (table, commit) not in self._found:
            self._found[table, commit] = look()
        return self._found[table, commit]

    def news(self, table: "TableName", seen: "Callable[[], dict[str, Seen]]", levels: "Levels") -> "News | None":
        """Return what a source has that its table lacks; None for one of files, or that is filled otherwise.

        `levels` are those of the lake's inboxes: what is pushed comes from there.
        """
        source = self._flow.sources[table]
        if isinstance(source.origin, Files | Manual):
            return None
        from runnel.connect.feed.state import state_of
        from runnel.connect.feed_registry import feed_of
        from runnel.lake.flow_state.ingest_position import STATE

        position = seen()
        key = (table, position[STATE].state if STATE in position else None)
        if key not in self._known:
            feed = feed_of(source, self._flow.root, levels)
            self._known[key] = feed.news(state_of(position)) if feed is not None else None
        return self._known[key]
