"""A source with its files and its table, so that a test of ingesting states only what matters."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runnel.connect.ingest.detect.arrivals import find_file_changes
from runnel.connect.ingest.detect.digests import DigestCache
from runnel.connect.ingest.detect.file_changes import FileChanges
from runnel.connect.ingest.ingest import IngestResult, IngestTarget, ingest_source
from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source, quarantine_table_of
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.history.commits import CommitChange
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.work_runner import ChooseRunner, run_in_process
from runnel.names import TableName
from tests.lake.factories import read as rows_of

ORDERS = TableName("ods", "orders")


@dataclass
class Ingesting:
    """A source with its files and its table, ingested as a run would do it."""

    store: Store
    root: Path
    source: Source
    how: str = "v1"
    seen: dict[str, ProcessedFile] = field(default_factory=dict)
    found: FileChanges | None = None
    done: IngestResult | None = None
    choose_runner: ChooseRunner = run_in_process

    def write(self, name: str, contents: str | bytes) -> None:
        path = self.root / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents.encode() if isinstance(contents, str) else contents)

    def declare(self, how: str, *, schema: str | None = None, removed: str | None = None, **changes: Any) -> None:
        assert isinstance(self.source.origin, Files)
        origin = self.source.origin
        if schema is not None:
            origin = replace(origin, schema=parse_columns(schema))
        if removed is not None:
            origin = replace(origin, removed=removed)
        self.source, self.how = replace(self.source, origin=origin, **changes), how

    def look(self) -> FileChanges:
        cache = DigestCache(self.root / ".runnel" / "digests.db")
        self.found = find_file_changes(self.root, self.source, self.how, self.seen, self.content, cache=cache)
        return self.found

    def run(self) -> FileChanges:
        """Look, read and publish, as far as there is something to do."""
        found = self.look()
        if found.is_empty:
            self.seen |= {each.path: each for each in found.moved_files}
            return found
        state = self.store.state()
        aside = quarantine_table_of(self.source.table)
        before, set_aside = (state[name].location if name in state else None for name in (ORDERS, aside))
        target = IngestTarget(self.store, self.source, before, set_aside, "r1", choose_runner=self.choose_runner)
        done = ingest_source(target, self.root, found, lambda: self.seen)
        self.done = done
        if done.location == before:
            self.seen |= {each.path: each for each in done.processed_files}
            return found
        changes = [CommitChange(ORDERS, before, done.location, done.content)]
        if done.quarantine:
            changes.append(CommitChange(aside, set_aside, *done.quarantine))
        publish(self.store.db, CommitDraft("main", "ingest", "ada", tuple(changes)))
        self.seen |= {each.path: each for each in done.processed_files}
        return found

    @property
    def content(self) -> str | None:
        version = self.store.state().get(ORDERS)
        return version.content if version else None

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return rows_of(self.store, "ods.orders")
