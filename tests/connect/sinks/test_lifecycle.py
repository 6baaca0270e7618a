"""The life of a sink, told for every kind: whatever happens to it, it comes to hold what the lake's table holds.

Sinks that nothing is removed from hold every row that ever came. What may come twice comes with the same key.

Kinds of a family go the same way, so kills meet them in turn. With RUNNEL_EVERY_KILL=1 each kind meets every kill.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest

from runnel.connect.sinks.failpoints import ACCEPTED, ALL, REPLACING, SENDING, STAGING
from runnel.lake.failpoints import PUBLISH_AFTER_COMMIT
from tests.connect.lifecycle.source_lifecycle import EVERY_KILL
from tests.connect.sinks.conftest import KINDS
from tests.connect.sinks.sink_kinds import REFUSED, Kind, Rows, row_of
from tests.connect.sinks.sink_project import Shop

Kills = Mapping[str, Sequence[int]]
# At which passings each kind is killed, one process after another. Of databases each is sent to in another mode.
MEETS: dict[str, dict[str, Kills]] = {
    "databases": {
        "sqlite": {SENDING: (1,), ACCEPTED: (1,), PUBLISH_AFTER_COMMIT: (1,)},
        "postgresql": {SENDING: (2,), ACCEPTED: (1,)},
        "mariadb": {SENDING: (3,), ACCEPTED: (1,)},
        "postgresql units": {STAGING: (2,), SENDING: (1, 3)},
        "mariadb units": {STAGING: (1,), SENDING: (2,)},
    },
    "files": {
        "file": {SENDING: (2,), ACCEPTED: (1,), PUBLISH_AFTER_COMMIT: (1,)},
        "folder": {REPLACING: (1, 2), ACCEPTED: (1,)},
        "objects": {SENDING: (1,), REPLACING: (1,), ACCEPTED: (2,)},
        "folder units": {STAGING: (2,), REPLACING: (2,)},
        "objects units": {STAGING: (1,), REPLACING: (1,)},
    },
    "streams": {
        "kafka": {SENDING: (1,), ACCEPTED: (2,)},
        "webhook": {SENDING: (2,), ACCEPTED: (1,)},
        "function": {SENDING: (1,), ACCEPTED: (1,), PUBLISH_AFTER_COMMIT: (1,)},
        "kafka units": {SENDING: (1,), ACCEPTED: (2,)},
    },
}


def test_every_kind_is_killed_and_every_family_at_every_point() -> None:
    assert sorted(name for family in MEETS.values() for name in family) == sorted(KINDS)
    for name, family in MEETS.items():
        met = {point for kills in family.values() for point in kills}
        left_out = {"databases": {REPLACING}, "files": set(), "streams": {REPLACING, STAGING}}[name]
        assert met == {*ALL, PUBLISH_AFTER_COMMIT} - left_out


@pytest.mark.crash
def test_life(shop: Shop, kind: Kind, request: pytest.FixtureRequest) -> None:
    shop.sinks(*kind.lines())
    life = Life(shop, kind)
    life.run()
    nothing_new(life)
    rows_come(life)
    rows_change_and_go_while_it_refuses(life)
    for point, passings in kills_of(kind, request.node.callspec.params["kind"]).items():
        it_is_killed(life, point, *passings)
    the_source_is_rewound(life)
    a_commit_is_reverted(life)
    a_branch_is_merged(life)
    nothing_new(life)


def kills_of(kind: Kind, name: str) -> Kills:
    """Return where a kind is killed."""
    if EVERY_KILL:
        return {**kind.kills, PUBLISH_AFTER_COMMIT: (1,)}
    return next(family[name] for family in MEETS.values() if name in family)


class Life:
    """A project with all sinks of a kind, and what each of them should hold."""

    def __init__(self, shop: Shop, kind: Kind) -> None:
        self.shop = shop
        self.kind = kind
        self.names = [one["sink"] for one in shop.states()]
        self._now: Rows = Counter()
        self._all: Rows = Counter()
        self._days = 3

    def new(self, *first: tuple[int, str, str]) -> None:
        """Let an order come on a day of its own, and the first file hold other orders."""
        self._days += 1
        self.shop.day(f"new-{self._days}", (100 + self._days, f"2026-01-{self._days:02}", "3.00"))
        self.shop.day("a", *first)

    def run(self) -> None:
        """Run, which delivers something, and check that every sink has followed."""
        ran = self.shop.run()
        assert {sent.state for sent in ran.sinks} == {"delivered"}, ran
        self.follow()

    def follow(self) -> None:
        """Check that each sink holds what it should since the lake has moved."""
        now: Rows = Counter(row_of(*row) for row in self.shop.rows("ods.orders"))
        self._all, self._now = self._all + (now - self._now), now
        self.stay()

    def stay(self) -> None:
        """Check that each sink holds what it should since it followed last."""
        expected = {name: self._all if name in self.kind.grows else self._now for name in self.names}
        assert self.kind.rows() == expected

    def current(self) -> None:
        """Check that `runnel sinks` says that no sink lacks anything."""
        assert {(one["state"], one["behind"], one["problem"]) for one in self.shop.states()} == {("current", 0, None)}

    def keys(self) -> Counter[str]:
        """Return how often each key came; what came with the same key must be the same."""
        seen: dict[str, object] = {}
        found = self.kind.sent()
        for key, what in found:
            assert seen.setdefault(key, what) == what, key
        return Counter(key for key, _ in found)


def nothing_new(life: Life) -> None:
    before = life.kind.sent()
    assert life.shop.run().sinks == ()
    assert life.kind.sent() == before
    life.current()


def rows_come(life: Life) -> None:
    life.shop.day("b", (3, "2026-01-03", "8.00"))
    life.run()


def rows_change_and_go_while_it_refuses(life: Life) -> None:
    """The lake has the commit, the sink stays as it was and says why, and the next run goes on."""
    life.shop.day("a", (1, "2026-01-01", "7.00"))
    life.shop.day("b")
    life.shop.day("refused", (REFUSED, "2026-01-03", "9.00"))
    with life.kind.refusing():
        ran = life.shop.run()
        assert ran.state == "succeeded" and {sent.state for sent in ran.sinks} == {"failed"}
        assert REFUSED in [row[0] for row in life.shop.rows("ods.orders")]
        for one in life.shop.states():
            assert (one["state"], one["behind"], one["attempts"]) == ("failing", 1, 1)
            assert life.kind.code in one["problem"] and "flows/flow.py:" in one["problem"]
    life.stay()
    life.run()
    life.current()


def it_is_killed(life: Life, point: str, *passings: int) -> None:
    """What was under way comes again with the same keys; what was taken before does not."""
    life.new((1, "2026-01-01", f"{len(point)}.00"), (2, "2026-01-02", "6.50"))
    old = life.keys()
    for passing in passings:
        life.shop.killed(f"{point}:kill@{passing}")
    life.run()
    came = life.keys() - old
    assert not old.keys() & came.keys()
    again = {key.split("/")[0] for key, times in came.items() if times > 1}
    if point == ACCEPTED:
        assert again == (struck(life.names, passings) if old else set())
    if point == PUBLISH_AFTER_COMMIT:
        assert not again


def struck(names: Sequence[str], passings: Iterable[int]) -> set[str]:
    """Return the sinks that were under way when one process after another was killed."""
    found, left = set(), list(names)
    for passing in passings:
        left = left[passing - 1 :]
        found.add(left[0])
    return found


def the_source_is_rewound(life: Life) -> None:
    with life.shop.open() as lake:
        lake.rewind("ods.orders", to="main~1")
    life.shop.deliver()
    life.follow()
    life.run()


def a_commit_is_reverted(life: Life) -> None:
    with life.shop.open() as lake:
        lake.revert("main")
    life.run()


def a_branch_is_merged(life: Life) -> None:
    with life.shop.open() as lake:
        lake.branch("dev")
    life.new((2, "2026-01-02", "9.50"))
    assert life.shop.run(branch="dev").sinks == ()
    life.stay()
    with life.shop.open() as lake:
        lake.merge("dev")
    life.run()
