"""The inbox: what is pushed is numbered without gaps, known by its keys, and seen in order, on both databases."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.flow_state import inbox_writer
from runnel.lake.flow_state.inbox_level import InboxLevel
from runnel.lake.flow_state.inbox_reader import InboxReader, read_inbox_level
from runnel.lake.flow_state.inbox_writer import PushReceipt, PushRequest, write_events
from runnel.lake.store import Store
from runnel.names import TableName
from tests.service.running_service import until

EVENTS = TableName("ods", "events")


def parcel(*events: str, keys: Sequence[str | None] = (), request: tuple[str, str] | None = None) -> PushRequest:
    return PushRequest(str(EVENTS), events, keys, request)


def kept(store: Store, after: int = 0) -> list[str]:
    """Return the events after a number up to the last, having seen that there are no gaps."""
    inbox = InboxReader(store.db)
    last = inbox.read_level(EVENTS).last
    lots = list(inbox.read_batches(EVENTS, after, last))
    numbers = [number for lot in lots for number in range(lot.first, lot.last + 1)]
    assert numbers == list(range(after + 1, last + 1))
    lines = [line for lot in lots for line in lot.body.decode().split("\n") if line]
    assert len(lines) == len(numbers)
    return lines


def test_events_are_kept_in_order(both: Store) -> None:
    assert InboxReader(both.db).read_level(EVENTS) == InboxLevel(0, 0) and kept(both) == []
    assert write_events(both.db, [parcel("{}"), parcel('{"a": 1}', '{"a": 2}')]) == [
        PushReceipt(1, 0),
        PushReceipt(2, 0),
    ]
    assert write_events(both.db, [parcel('{"a": "é\u2028"}'), PushRequest("ods.more", ["{}"])]) == [
        PushReceipt(1, 0),
        PushReceipt(1, 0),
    ]
    assert kept(both) == ["{}", '{"a": 1}', '{"a": 2}', '{"a": "é\u2028"}'] and InboxReader(both.db).read_level(
        EVENTS
    ) == InboxLevel(4, 0)
    assert InboxReader(both.db).read_level(TableName("ods", "more")).last == 1


def test_much_is_kept_in_several_rows(both: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_writer, "ROW_BYTES", 10)
    events = [f'{{"a": {number}}}' for number in range(100)]
    write_events(both.db, [parcel(*events)])
    assert kept(both) == events
    assert len(list(InboxReader(both.db).read_batches(EVENTS, 90, 100))) < 10
    rows = sa.select(sa.func.count()).select_from(schema.inbox)
    assert both.db.read(lambda connection: connection.execute(rows).scalar()) == 50


KNOWN = {
    "in an earlier write": [[["a"]], [["a", "b"]]],
    "in another request of the same write": [[["a"], ["a", "b"]]],
    "in the same request": [[["a", "a", "b"]]],
}


@pytest.mark.parametrize("writes", KNOWN.values(), ids=KNOWN)
def test_an_event_whose_key_is_known_is_not_taken_again(both: Store, writes: list[list[list[str]]]) -> None:
    receipts = [
        one
        for write in writes
        for one in write_events(both.db, [parcel(*(f'"{key}"' for key in keys), keys=keys) for keys in write])
    ]
    assert all(isinstance(one, PushReceipt) for one in receipts)
    assert (sum(one.accepted for one in receipts), sum(one.duplicates for one in receipts)) == (2, 1)  # type: ignore[union-attr]
    assert kept(both) == ['"a"', '"b"']


def test_an_event_without_a_key_is_always_taken(both: Store) -> None:
    for _ in range(2):
        assert write_events(both.db, [parcel("{}", "{}", keys=[None, "a"])])[0].accepted in (1, 2)  # type: ignore[union-attr]
    assert len(kept(both)) == 3


def test_a_request_that_comes_again_gets_the_same_answer(both: Store) -> None:
    first = parcel("1", "2", request=("k", "r"))
    assert write_events(both.db, [first, first]) == [PushReceipt(2, 0), PushReceipt(2, 0, is_repeated=True)]
    assert write_events(both.db, [first]) == [PushReceipt(2, 0, is_repeated=True)]
    other, good = write_events(both.db, [parcel("3", keys=["e"], request=("k", "another")), parcel("4")])
    assert isinstance(other, Mistake) and other.code == "KEY_REUSED" and good == PushReceipt(1, 0)
    assert write_events(both.db, [parcel("3", keys=["e"])]) == [PushReceipt(1, 0)]  # what was refused is not known
    assert kept(both) == ["1", "2", "4", "3"]


def test_a_request_refused_beside_another_leaves_no_keys(both: Store) -> None:
    first, other = (parcel(name, keys=[name], request=("k", name)) for name in ("1", "2"))
    taken, refused = write_events(both.db, [first, other])
    assert taken == PushReceipt(1, 0) and isinstance(refused, Mistake)
    assert write_events(both.db, [parcel("2", keys=["2"])]) == [PushReceipt(1, 0)] and kept(both) == ["1", "2"]


def test_keys_have_the_last_number_of_their_write(both: Store) -> None:
    write_events(both.db, [parcel("1", "2", keys=["a", "b"])])
    write_events(both.db, [parcel("1", "2", "3", keys=["a", "b", "c"], request=("k", "r")), parcel("4")])
    query = sa.select(schema.inbox_keys.c.key, schema.inbox_keys.c.number)
    found = both.db.read(lambda connection: connection.execute(query).all())
    assert {row.key: row.number for row in found} == {"a": 2, "b": 2, "c": 4, "k": 4}


def test_a_reader_never_misses_a_number(catalog: str, tmp_path: Path) -> None:
    """Writers of several processes push at once; whoever reads sees all numbers up to the last, each time."""
    stores = [Store.open(catalog, f"{tmp_path}/w") for _ in range(5)]
    done = threading.Event()

    def write(number: int) -> None:
        for count in range(25):
            write_events(stores[number].db, [parcel(f'"{number}-{count}"')])

    def read() -> int:
        looks, seen = 0, 0
        while not done.is_set():
            looks, found = looks + 1, kept(stores[4], seen)  # asserts that there is no gap
            seen += len(found)
        return looks

    with ThreadPoolExecutor(5) as pool:
        reading = pool.submit(read)
        for one in [pool.submit(write, number) for number in range(4)]:
            one.result()
        done.set()
        assert reading.result() > 0
    assert len(set(kept(stores[0]))) == 100 and InboxReader(stores[0].db).read_level(EVENTS).last == 100
    for store in stores:
        store.close()


@pytest.mark.postgres
@pytest.mark.parametrize("catalog", ["postgresql"], indirect=True)
def test_a_number_is_given_out_only_when_the_one_before_is_seen(catalog: str, tmp_path: Path) -> None:
    """A writer that has numbers and has not committed holds up the next one, until its events can be seen."""
    store = Store.open(catalog, f"{tmp_path}/w")
    write_events(store.db, [parcel("1")])
    waits = sa.text("select count(*) from pg_locks where not granted")
    with store.db.engine.connect() as connection, connection.begin(), ThreadPoolExecutor(1) as pool:
        assert inbox_writer._lock_inboxes(store.db, connection, [parcel("2")]) == {str(EVENTS): 1}
        second = pool.submit(write_events, store.db, [parcel("3")])
        until(lambda: store.db.read(lambda c: c.execute(waits).scalar()) == 1, 30, lambda: "nobody waits")
        assert not second.done() and store.db.read(lambda c: read_inbox_level(c, str(EVENTS))).last == 1
        writing = inbox_writer._InboxWriter(store.db, connection, str(EVENTS), 1)
        assert writing.accept(parcel("2")) == PushReceipt(1, 0)
        writing.write("mark", store.db.now(connection))
        connection.commit()
        assert second.result(30) == [PushReceipt(1, 0)]
    assert kept(store) == ["1", "2", "3"]
    store.close()
