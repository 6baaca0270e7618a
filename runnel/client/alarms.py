"""What is wrong with a lake now, and whom the service could not tell."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.lake import alarms, tellings

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.alarms import Alarm
    from runnel.lake.tellings import Telling


@dataclass(frozen=True)
class Open:
    """An alarm that is not over, with what became of telling it."""

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
    with lake.store.db.reading() as connection:
        found = alarms.alarms(connection)
        told = defaultdict[str, list["Telling"]](list)
        for one in tellings.tellings(connection, found):
            told[one.alarm.key].append(one)
    return [Open(one, tuple(told[one.key])) for one in found]
