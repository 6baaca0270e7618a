"""Claims that nobody renews are ended by a clock that never jumps."""

from runnel.lake.control import run_claims, run_queue
from runnel.lake.control.queue_entry import QueueRequest
from runnel.lake.control.run_claims import CLAIM_SECONDS
from runnel.lake.store import Store
from runnel.model.run_request import RunRequest
from runnel.service.stale_claims import StaleClaimReaper


class Ticks:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_only_what_is_not_renewed_for_long_enough(both: Store) -> None:
    ticks = Ticks()
    reaper = StaleClaimReaper(both.db, ticks)
    both.db.write(
        lambda c: run_queue.add(c, both.db, [QueueRequest(RunRequest(), "ada"), QueueRequest(RunRequest(), "ada")])
    )
    lost, kept = run_claims.claim(both.db, "w1"), run_claims.claim(both.db, "w2")
    assert lost is not None and kept is not None
    assert reaper.release_stale_claims() == []
    ticks.now += CLAIM_SECONDS + 1
    run_claims.renew(both.db, [kept.claim])
    assert [(one.id, one.state) for one in reaper.release_stale_claims()] == [(lost.id, "queued")]
    ticks.now += CLAIM_SECONDS + 1
    assert [one.id for one in reaper.release_stale_claims()] == [kept.id]
    assert reaper.release_stale_claims() == []
