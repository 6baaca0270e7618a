"""`rn.schedule`: declare when to run what. Only recorded so far."""

from collections.abc import Sequence
from typing import Any

from runnel.declare import cron as cron_text
from runnel.declare.flow import Schedule
from runnel.declare.given import Given
from runnel.declare.registry import current
from runnel.errors import Mistake
from runnel.names import shown

KNOWN = ("cron", "tz", "every", "on_change", "at_most_every", "select")


def schedule(
    name: str,
    *,
    select: str | Sequence[str] | None = None,
    cron: str | None = None,
    tz: str | None = None,
    every: str | None = None,
    on_change: str | Sequence[str] | None = None,
    at_most_every: str | None = None,
    **unknown: object,
) -> None:
    """Declare when to run what `select` selects (everything, if it is left out).

    One of: `cron="0 2 * * *"` with `tz="Asia/Shanghai"` (UTC without), `every="10 minutes"`, or
    `on_change="ods.orders"` with `at_most_every="1 minute"`.
    """
    registry = current()
    place = registry.here()
    values: dict[str, Any] = {"name": name, "select": select, "cron": cron, "tz": tz, "every": every}
    values |= {"on_change": on_change, "at_most_every": at_most_every}
    given = Given(f"schedule {shown(name)}", values, lambda _, mistake: registry.note(mistake, place))
    given.unknown(list(unknown), KNOWN)
    _refuse_wrong_times(given, values)
    found = Schedule(
        name=given.text("name") or "?",
        select=" ".join(given.texts("select")),
        place=place,
        cron=given.text("cron"),
        tz=given.text("tz"),
        every=given.duration("every"),
        on_change=given.texts("on_change", "a table"),
        at_most_every=given.duration("at_most_every"),
    )
    registry.add(found)


def _refuse_wrong_times(given: Given, values: dict[str, Any]) -> None:
    chosen = [name for name in ("cron", "every", "on_change") if values[name] is not None]
    if len(chosen) != 1:
        what = f"it has {' and '.join(chosen)}, but needs one of them" if chosen else "it does not say when"
        given.wrong("cron", what, 'write cron="0 2 * * *", every="10 minutes" or on_change="ods.orders"')
    if values["cron"] is not None:
        try:
            cron_text.refuse_wrong(values["cron"])
        except Mistake as mistake:
            given.tell("cron", mistake)
    if values["tz"] is not None and not _is_zone(values["tz"]):
        given.wrong("tz", f"{shown(values['tz'])} is not a time zone", "use a name such as Asia/Shanghai or UTC")


def _is_zone(name: object) -> bool:
    from zoneinfo import ZoneInfo

    try:
        return isinstance(name, str) and ZoneInfo(name) is not None
    except (ValueError, OSError, KeyError):
        return False
