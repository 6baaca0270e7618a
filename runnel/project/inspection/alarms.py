"""What is wrong with a lake now, and whom the service could not tell."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from runnel.lake.control import alarms as kept
from runnel.lake.control import notifications

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.alarms import Alarm
    from runnel.lake.control.notifications import Telling


@dataclass(frozen=True)
class Open:
    """An alarm, mostly one that is not over, with what became of telling it."""

    alarm: "Alarm"
    told: "tuple[Telling, ...]" = ()

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        told = [
            {"alert": one.alert, "told_at": one.told_at, "tries": one.tries, "problem": one.problem}
            for one in self.told
        ]
        return {**self.alarm.json(), "told": told}

    def lines(self) -> list[str]:
        """Return what people read."""
        alarm = self.alarm
        found = [f"{alarm.level}: {alarm.what}", f"  since {alarm.since[:19].replace('T', ' ')} UTC"]
        found += [f"  blocks {', '.join(alarm.blocks)}"] if alarm.blocks else []
        found += [f"  to do: {alarm.fix}"]
        return found + [f"  could not be told to {one.alert}: {one.problem}" for one in self.told if one.problem]


def open_alarms(lake: "Lake") -> list[Open]:
    """Return all that is wrong, the oldest first."""
    return alarms(lake, "open")


def alarms(lake: "Lake", state: Literal["open", "over", "all"]) -> list[Open]:
    """Return what is wrong, the oldest first, what is over, the newest first, or the former and then the latter."""
    with lake.store.db.reading() as connection:
        known = kept.alarms(connection, over_after=None if state == "open" else "")
        wrong = [one for one in known if one.over_at is None and state != "over"]
        past = [one for one in reversed(known) if one.over_at is not None]
        found = [*wrong, *past]
        told = defaultdict[tuple[str, int], list["Telling"]](list)
        for one in notifications.tellings(connection, found):
            told[one.alarm.key, one.alarm.number].append(one)
    return [Open(one, tuple(told[one.key, one.number])) for one in found]
