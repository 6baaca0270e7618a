"""`runnel alarms` on the command line: what it prints, and its mistakes."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import runnel as rn
from runnel.lake.control.alarms import Alarm, update_alarms
from tests.cli.conftest import Done

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FAILED = Alarm(
    "failed/dws.day", "failed", "the run of dws.day failed", "2026-01-02T02:00:00.000000Z", fix="do x", run="r"
)


@pytest.fixture
def alarmed(shop: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Return the command line of a shop with one open alarm."""
    monkeypatch.setenv("RUNNEL_AUTHOR", "ada")
    with rn.open(tmp_path) as lake:
        update_alarms(lake.store.db, [FAILED], AT)
    return shop


def test_acknowledge_mute_and_dismiss(alarmed: Callable[..., Done]) -> None:
    (alarm,) = alarmed("alarms", "--json").json["alarms"]
    assert alarmed("alarms").out.splitlines() == [
        "alarm: the run of dws.day failed",
        f"  id {alarm['id']}, since 2026-01-02 02:00:00 UTC",
        "  to do: do x",
        "",
    ]
    acknowledged = alarmed("alarms", "ack", alarm["id"], "--note", "on it", "--json").json
    assert (acknowledged["acknowledged_by"], acknowledged["note"], acknowledged["state"]) == ("ada", "on it", "open")
    assert "  acknowledged by ada at " in alarmed("status").out
    muted = alarmed("alarms", "mute", "failed", "--for", "2 hours", "--json").json
    assert (muted["kind"], muted["subject"], muted["muted_by"]) == ("kind", "failed", "ada")
    text = alarmed("alarms").out
    until = muted["muted_until"][:19].replace("T", " ")
    assert f"  muted by ada until {until} UTC" in text and f"muted: kind failed until {until} UTC, by ada" in text
    assert alarmed("alarms", "unmute", "failed").out == "no longer muted: kind failed\n"
    done = alarmed("alarms", "dismiss", alarm["id"])
    assert done.out == (
        "dismissed: the run of dws.day failed\n"
        "it comes back only with a new failure; `runnel alarms mute` stops notifications for a time\n"
    )
    assert alarmed("alarms").out == "no open alarms; `runnel alarms --all` also lists those that are over\n"
    past = alarmed("alarms", "--all").out.splitlines()
    assert past[0] == "over: the run of dws.day failed" and past[2] == "  dismissed by ada: on it"
    assert alarmed("status", "--json").json["alarms"] == []


MISTAKES = {
    "an unknown action": (("alarms", "akc", "x"), "`runnel alarms` can't `akc`; close: `ack`"),
    "no alarm": (("alarms", "ack"), "which alarm? write `runnel alarms ack ID`"),
    "no duration": (("alarms", "mute", "late"), "for how long? write `runnel alarms mute late --for '2 hours'`"),
    "an unknown alarm": (("alarms", "dismiss", "failed/dws.dya"), "close: `failed/dws.day`"),
    "an unknown subject": (("alarms", "mute", "ods.order", "--for", "1 hour"), "close: `ods.orders`"),
    "a duration that is none": (("alarms", "mute", "late", "--for", "soon"), "'soon' is not a duration"),
    "an option of another action": (("alarms", "ack", "x", "--for", "1 hour"), "--for belongs to"),
}


@pytest.mark.parametrize(("words", "what"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(alarmed: Callable[..., Done], words: tuple[str, ...], what: str) -> None:
    done = alarmed(*words)
    assert done.code == 2 and what in done.err
