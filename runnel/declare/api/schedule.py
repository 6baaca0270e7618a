"""`rn.schedule`: declare when to run what."""

from collections.abc import Sequence
from typing import Any, Literal, cast

from runnel.declare.model.flow import Schedule
from runnel.declare.options import cron_syntax
from runnel.declare.options.deadline import zone_of
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import current
from runnel.errors import Mistake
from runnel.names import shown

KNOWN: tuple[str, ...] = ("cron", "tz", "every", "on_change", "at_most_every", "min_rows", "min_bytes", "select")
KNOWN += ("branch", "catch_up", "priority", "retries", "timeout")
_CHANGES = ("at_most_every", "min_rows", "min_bytes")  # what only goes with on_change


def schedule(
    name: str,
    *,
    select: str | Sequence[str] | None = None,
    cron: str | None = None,
    tz: str | None = None,
    every: str | None = None,
    on_change: str | Sequence[str] | None = None,
    at_most_every: str | None = None,
    min_rows: int | None = None,
    min_bytes: int | None = None,
    branch: str | None = None,
    catch_up: str | None = None,
    priority: int | None = None,
    retries: int | None = None,
    timeout: str | None = None,
    **unknown: object,
) -> None:
    """Declare when to run what `select` selects (everything, if it is left out).

    One of: `cron="0 2 * * *"` with `tz="Asia/Shanghai"` (UTC without), `every="10 minutes"`, or
    `on_change="ods.orders"`, then perhaps `at_most_every="1 minute"`, and `min_rows` or `min_bytes` that must have
    come or gone. Times that were missed: `catch_up="last"` makes up for the last one, `"all"` for each, `"none"` for
    none. Of what waits, the higher `priority` goes first. `retries` counts tries after failures that may pass, and
    `timeout="2 hours"` stops a run.
    """
    registry = current()
    place = registry.here()
    values: dict[str, Any] = {"name": name, "select": select, "cron": cron, "tz": tz, "every": every}
    values |= {"on_change": on_change, "at_most_every": at_most_every, "min_rows": min_rows, "min_bytes": min_bytes}
    values |= {"branch": branch, "catch_up": catch_up, "priority": priority, "retries": retries, "timeout": timeout}
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
        min_rows=given.number("min_rows", 0) or None,
        min_bytes=given.number("min_bytes", 0) or None,
        branch=given.text("branch") or "main",
        catch_up=cast("Literal['last', 'all', 'none']", given.choice("catch_up", ("last", "all", "none"), "last")),
        priority=given.number("priority", 0),
        retries=given.number("retries", 2),
        timeout=given.duration("timeout"),
    )
    registry.add(found)


def _refuse_wrong_times(given: Given, values: dict[str, Any]) -> None:
    chosen = [name for name in ("cron", "every", "on_change") if values[name] is not None]
    if len(chosen) != 1:
        what = f"it has {' and '.join(chosen)}, but needs one of them" if chosen else "it does not say when"
        given.wrong("cron", what, 'write cron="0 2 * * *", every="10 minutes" or on_change="ods.orders"')
    if values["on_change"] is None:
        for name in [name for name in _CHANGES if values[name] is not None]:
            given.wrong(name, f"`{name}` goes with on_change", 'write on_change="ods.orders", or leave it out')
    if values["every"] is not None and given.seconds("every") == 0:
        given.wrong("every", "`every` must be a second at least", 'write every="1 minute"')
    if values["cron"] is not None:
        try:
            cron_syntax.refuse_wrong(values["cron"])
        except Mistake as mistake:
            given.tell("cron", mistake)
    if values["tz"] is not None and zone_of(values["tz"]) is None:
        given.wrong("tz", f"{shown(values['tz'])} is not a time zone", "use a name such as Asia/Shanghai or UTC")
