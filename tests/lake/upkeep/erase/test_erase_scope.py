"""How far an erasure reaches: what streams read, the inbox and the quarantine; and what it says that it leaves."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from runnel.connect.load import quarantine
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.lake.catalog import schema
from runnel.lake.control import declarations, idempotency_keys, queue_entry, run_claims, run_events, run_queue
from runnel.lake.control.declarations import ProjectDeclarations, SourceDeclaration
from runnel.lake.control.idempotency_keys import ClaimedKey, StoredResponse
from runnel.lake.flow_state import append_log, runs, streams
from runnel.lake.flow_state.append_log import AppendLog
from runnel.lake.flow_state.inbox_reader import InboxReader
from runnel.lake.flow_state.inbox_writer import PushRequest, write_events
from runnel.lake.history import branches
from runnel.lake.history.commits import CommitChange
from runnel.lake.iceberg import manifests, table_metadata
from runnel.lake.iceberg.manifests import read_listed_manifests
from runnel.lake.publish import CommitDraft, publish
from runnel.lake.store import Store
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.derived_tables import DerivedTable
from runnel.lake.upkeep.erase.erase import ErasedQuarantine, erase
from runnel.lake.upkeep.erase.erase_answers import ErasedAnswers
from runnel.lake.upkeep.erase.unsearched_places import find_log_files
from runnel.lake.upkeep.fsck.fsck import fsck
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.lake.work_runner import ChooseRunner, WorkContext, run_in_process
from runnel.model.run_request import RunRequest
from runnel.model.worker_request import QueryRequest
from runnel.names import TableName
from tests.lake.factories import add, create, read, rows
from tests.lake.pickling_runner import PicklingRunner
from tests.lake.upkeep.erase.test_erase import traces

EVENTS, SUMS = TableName.parse("ods.events"), TableName.parse("dws.sums")
ANN = "day = 'ann'"
BOB = (2, "bob", 1)


class Streaming:
    """A table of events, and a stream that reads it on a tape with a snapshot for each commit."""

    def __init__(self, store: Store) -> None:
        self.store = store
        create(store, "ods.events", rows((1, "ann", 1), BOB))
        self.hold([self.wound(None)])

    def wound(self, before: AppendLog | None) -> AppendLog:
        version = self.store.state()[EVENTS]
        if before is None:
            return append_log.create(self.store, EVENTS, version.location, version.content)
        return append_log.extend(self.store, EVENTS, before, version.location, version.content)

    def hold(self, tapes: list[AppendLog]) -> None:
        with streams.acquire_lease(self.store.db, "main", SUMS, "code") as held:
            for found in tapes:
                assert held.update_append_logs({EVENTS: found}, held.read_stream().append_logs)

    def add(self, *values: tuple[int, str, int]) -> None:
        add(self.store, "ods.events", rows(*values))
        self.hold([self.wound(self.tape)])

    @property
    def tape(self) -> AppendLog:
        return self.store.db.read(streams.list_streams)["main", SUMS].append_logs[EVENTS]

    def added(self) -> dict[int, list[list[int]]]:
        """Return what Spark reads of each snapshot: for each file that it added, the ids of its rows, in order."""
        table_metadata.clear_cache()
        manifests.clear_cache()
        found: dict[int, list[list[int]]] = {}
        for snapshot in table_metadata.load_metadata(self.store, self.tape.location).snapshots:
            files = found.setdefault(snapshot.snapshot_id, [])
            for manifest in read_listed_manifests(self.store, snapshot.manifest_list):
                if manifest.added_snapshot_id == snapshot.snapshot_id:
                    entries = manifest.fetch_manifest_entry(self.store.io, discard_deleted=False)
                    files += [_ids(entry.data_file.file_path) for entry in entries if entry.status == 1]
        return found


def _ids(path: str) -> list[int]:
    import pyarrow.parquet as pq

    return list(pq.read_table(path)["id"].to_pylist())


@pytest.fixture
def streaming(store: Store) -> Streaming:
    return Streaming(store)


def test_streams_read_on_where_they_were(streaming: Streaming) -> None:
    """Each snapshot stays, with as many files, even where no row of a file is left: Spark counts them."""
    streaming.add((3, "ann", 1))
    streaming.add((4, "bob", 1), (5, "ann", 1))
    before = streaming.added()
    assert list(before.values()) == [[], [[1, 2]], [[3]], [[4, 5]]]
    done = erase(streaming.store, EVENTS, ANN)
    assert done.streams == ("dws.sums",) and (done.rows, done.left) == (3, 0)
    after = streaming.added()
    assert list(after) == list(before) and list(after.values()) == [[], [[2]], [[]], [[4]]]
    assert streaming.tape.reached == streaming.store.state()[EVENTS].location
    assert fsck(streaming.store, deep=True).is_clean and traces(streaming.store, "ann") == []
    streaming.add((6, "bob", 1))
    assert list(streaming.added().values())[-1] == [[6]]
    gc(streaming.store, Retention(commits="0 seconds", grace="0 seconds"))
    assert fsck(streaming.store, deep=True).is_clean
    assert [ids for files in streaming.added().values() for ids in files] == [[2], [], [4], [6]]


def test_rows_that_only_a_tape_still_has_are_erased(streaming: Streaming) -> None:
    """The table was compacted and its old versions are gone; the stream has still to read the files as they came."""
    streaming.add((3, "ann", 1))
    compact(streaming.store, EVENTS, force=True)
    gc(streaming.store, Retention(commits="0 seconds", grace="0 seconds"))
    assert [ids for files in streaming.added().values() for ids in files] == [[1, 2], [3]]
    erase(streaming.store, EVENTS, ANN)
    assert [ids for files in streaming.added().values() for ids in files] == [[2], []]
    assert fsck(streaming.store, deep=True).is_clean and traces(streaming.store, "ann") == []


def test_a_stream_that_winds_meanwhile_does_not_bring_the_old_tape_back(streaming: Streaming) -> None:
    with streams.acquire_lease(streaming.store.db, "main", SUMS, "code") as held:
        known = held.read_stream().append_logs
        erase(streaming.store, EVENTS, ANN)
        assert not held.update_append_logs(known | {SUMS: known[EVENTS]}, known)
        assert held.read_stream().append_logs != known
    assert fsck(streaming.store, deep=True).is_clean


def test_rows_are_counted_apart_from_their_copies(store: Store) -> None:
    create(store, "ods.events", rows((1, "ann", 1), BOB))
    branches.fork_branch(store.db, "dev", store.commit(), "ada")
    add(store, "ods.events", rows((3, "ann", 1)), branch="dev")
    compact(store, EVENTS, branch="main", force=True)
    add(store, "ods.events", rows((4, "ann", 1)))
    compact(store, EVENTS, branch="main", force=True)
    done = erase(store, EVENTS, ANN, dry_run=True)
    assert {found.branch: found.rows for found in done.branches} == {"dev": 2, "main": 2}
    assert (done.rows, done.copies) == (4, 5)
    assert erase(store, EVENTS, ANN).rows == 4
    assert store.commit("main").message == "erase 2 rows of ods.events"


def test_tables_that_were_computed_from_it_are_named(store: Store) -> None:
    create(store, "ods.events", rows((1, "ann", 1), BOB))
    create(store, "ods.other", rows(BOB))
    for name, used in (("dws.days", "ods.events"), ("dws.weeks", "dws.days"), ("dws.none", "ods.other")):
        location = store.state()[TableName.parse(used)].location
        create(store, "tmp.x", rows((1, "ann", 1)))
        table, version = TableName.parse(name), store.state()[TableName.parse("tmp.x")]
        detail = {"inputs": {used: {"location": location, "content": location}}, "key": "k"}
        changes = (
            CommitChange(table, None, version.location, None, detail),
            CommitChange(TableName.parse("tmp.x"), version.location, None),
        )
        publish(store.db, CommitDraft("main", "run", "ada", changes))
    done = erase(store, EVENTS, ANN, dry_run=True)
    fix = "runnel run {0} for its current rows; runnel erase {0} --where ... for its older versions"
    assert done.downstream == tuple(
        DerivedTable(name, ("main",), fix.format(name)) for name in ("dws.days", "dws.weeks")
    )


def aside(raw: str) -> QuarantinedRow:
    return QuarantinedRow(raw, "not a number", None, "r", datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "choose_runner",
    [run_in_process, pytest.param(PicklingRunner(), marks=pytest.mark.cluster)],
    ids=["process", "units"],
)
def test_its_quarantine_is_erased_and_what_can_t_be_told_is_counted(store: Store, choose_runner: ChooseRunner) -> None:
    create(store, "ods.events", rows(BOB))
    name = TableName.parse("quarantine.ods_events")
    raws = ['{"id": "x", "day": "ann"}', '{"id": "y", "day": "bob"}', "7,ann,1", '{"DAY": "o\'x\\\\", "day": "ann"}']
    empty = quarantine.create(store, EVENTS)
    location = quarantine.append(store, empty, [aside(raw) for raw in raws])
    publish(store.db, CommitDraft("main", "set aside", "ada", (CommitChange(name, None, location),)))
    fix = "inspect them with runnel quarantine ods.events --raw, "
    fix += "then runnel erase quarantine.ods_events --where \"raw like '...'\""
    expected = ErasedQuarantine(str(name), 2, 1, fix)
    work = WorkContext(choose_runner)
    assert erase(store, EVENTS, ANN, dry_run=True, work=work).quarantine == expected
    assert erase(store, EVENTS, ANN, work=work).quarantine == expected
    assert sorted(row.raw or "" for row in quarantine.read_quarantined_rows(store, EVENTS)) == sorted(
        [raws[1], raws[2]]
    )
    assert fsck(store, deep=True).is_clean
    assert erase(store, EVENTS, ANN).quarantine == ErasedQuarantine(str(name), 0, 1, fix)


def ask(store: Store, request: QueryRequest | RunRequest, text: str) -> str:
    """Queue a request, and let a worker answer it with a text."""
    entry = queue_entry.QueueRequest(request, "ada", retries=0)
    run_queue.submit(store.db, entry)
    claimed = run_claims.claim(store.db, "w1", (request.kind,))
    assert claimed is not None
    run_claims.finish(store.db, claimed.claim, "succeeded", {"rows": [[text]]})
    return entry.id


def text_of(store: Store) -> str:
    tables = (schema.queue, schema.answers)
    return str([store.db.read(lambda c, table=table: c.execute(sa.select(table)).all()) for table in tables])


def test_stored_answers_of_the_service_are_erased(both: Store) -> None:
    """Of a request with a key, the key stays: it is not executed twice. Of runs everything stays, and is named."""
    create(both, "ods.events", rows((1, "ann", 1), BOB))
    run = ask(both, RunRequest(), "")
    ask(both, QueryRequest("select * from ods.events where day = 'ann'"), "ann")
    key = idempotency_keys.claim_key(both.db, "k", "POST /quarantine/ods.events/release")
    assert isinstance(key, ClaimedKey)
    idempotency_keys.store_response(both.db, key, StoredResponse(200, '{"rows": ["ann"]}'))
    run_events.add(both.db, run, [{"kind": "warning", "text": "ann"}])
    assert "ann" in text_of(both)
    assert erase(both, EVENTS, ANN, dry_run=True).answers == ErasedAnswers(requests=1, keys=1)
    assert "ann" in text_of(both)
    done = erase(both, EVENTS, ANN)
    assert done.answers == ErasedAnswers(requests=1, keys=1)
    assert "ann" not in text_of(both) and run in text_of(both)
    repeated = idempotency_keys.claim_key(both.db, "k", "POST /quarantine/ods.events/release")
    assert repeated == StoredResponse(200, "")
    assert [(place.place, place.entries) for place in done.unsearched] == [("events of runs", 1)]
    assert erase(both, EVENTS, ANN).answers == ErasedAnswers(0, 0)


def test_erased_answers_are_not_in_the_file_of_the_catalog(store: Store) -> None:
    create(store, "ods.events", rows(BOB))
    for _ in range(20):
        ask(store, QueryRequest("select 1"), "Ann Onymous")
    store.db.close()
    assert b"Ann Onymous" in Path(str(store.db.url.database)).read_bytes()
    erase(store, EVENTS, ANN)
    store.db.close()  # the last connection moves the write-ahead log into the file
    assert b"Ann Onymous" not in Path(str(store.db.url.database)).read_bytes()


def test_what_can_not_be_searched_is_named(store: Store, tmp_path: Path) -> None:
    create(store, "ods.events", rows(BOB))
    sources = {"ods.events": SourceDeclaration("ods.events", "files")}
    declarations.write_declarations(store.db, ProjectDeclarations(sources=sources))
    runs.start(store.db, "r1", "main", "ada", {})
    done = erase(store, EVENTS, ANN)
    assert [place.place for place in done.unsearched] == ["records of runs", "what source ods.events reads"]
    assert all(place.fix for place in done.unsearched)
    assert find_log_files(tmp_path / "logs") == ()
    (tmp_path / "logs/runs").mkdir(parents=True)
    (tmp_path / "logs/runs/r1.log").write_text("ann")
    assert [(place.place, place.entries) for place in find_log_files(tmp_path / "logs")] == [("log files", 1)]


def test_its_inbox_is_erased_and_the_other_events_keep_their_numbers(store: Store) -> None:
    create(store, "ods.events", rows(BOB))
    events = ['{"id": 1, "day": "ann"}', '{"id": 2, "day": "bob"}', '{"id": 3}', '{"id": 4, "day": "ann"}']
    write_events(store.db, [PushRequest("ods.events", events[:3]), PushRequest("ods.other", events)])
    write_events(store.db, [PushRequest("ods.events", events[3:])])
    assert erase(store, EVENTS, ANN, dry_run=True).events == 2
    done = erase(store, EVENTS, ANN)
    assert (done.rows, done.events) == (0, 2)
    kept = list(InboxReader(store.db).read_batches(EVENTS, 0, 4))
    assert [found.body for found in kept] == [f"\n{events[1]}\n{events[2]}\n".encode(), b"\n"]
    [other] = InboxReader(store.db).read_batches(TableName.parse("ods.other"), 0, 4)
    assert other.body.decode().splitlines() == events
    assert erase(store, EVENTS, ANN).events == 0


def test_sinks_that_had_the_rows_are_named(store: Store) -> None:
    create(store, "ods.events", rows((1, "ann", 1)))
    sink = {"kind": "sink", "name": "copy", "declared": '{"table": "ods.events", "branch": "main"}', "since": ""}
    store.db.write(lambda connection: connection.execute(schema.declared.insert().values(sink)))
    assert erase(store, EVENTS, ANN).sinks == ("copy",)
    assert read(store, "ods.events") == []
