"""`rn.schedule`: declare when to run which tables."""

from collections.abc import Sequence
from typing import Any, Literal, cast

from runnel.declare.model.flow import Schedule
from runnel.declare.options import cron_syntax
from runnel.declare.options.deadline import find_time_zone
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import current_registry
from runnel.errors import Mistake
from runnel.names import quote_value

OPTION_NAMES: tuple[str, ...] = ("cron", "tz", "every", "on_change", "at_most_every", "min_rows", "min_bytes", "select")
OPTION_NAMES += ("branch", "catch_up", "priority", "retries", "timeout")
_ON_CHANGE_OPTIONS = ("at_most_every", "min_rows", "min_bytes")  # allowed only with on_change


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
    """Declare when to run the tables of `select` (all tables by default).

    One of: `cron="0 2 * * *"` with `tz="Asia/Shanghai"` (UTC by default), `every="10 minutes"`, or
    `on_change="ods.orders"`, optionally with `at_most_every="1 minute"` and with `min_rows` or `min_bytes`, the least
    change that starts a run. Missed times: `catch_up="last"` runs the last one, `"all"` each, `"none"` none.
    Waiting runs with a higher `priority` start first. `retries` is how often to retry after temporary failures;
    `timeout="2 hours"` stops a run.
    """
    registry = current_registry()
    place = registry.caller_location()
    values: dict[str, Any] = {"name": name, "select": select, "cron": cron, "tz": tz, "every": every}
    values |= {"on_change": on_change, "at_most_every": at_most_every, "min_rows": min_rows, "min_bytes": min_bytes}
    values |= {"branch": branch, "catch_up": catch_up, "priority": priority, "retries": retries, "timeout": timeout}
    reader = OptionReader(
        f"schedule {quote_value(name)}", values, lambda _, mistake: registry.report_mistake(mistake, place)
    )
    reader.reject_unknown(list(unknown), OPTION_NAMES)
    _check_timing(reader, values)
    declaration = Schedule(
        name=reader.text("name") or "?",
        select=" ".join(reader.texts("select")),
        place=place,
        cron=reader.text("cron"),
        tz=reader.text("tz"),
        every=reader.duration("every"),
        on_change=reader.texts("on_change", "a table"),
        at_most_every=reader.duration("at_most_every"),
        min_rows=reader.number("min_rows", 0) or None,
        min_bytes=reader.number("min_bytes", 0) or None,
        branch=reader.text("branch") or "main",
        catch_up=cast("Literal['last', 'all', 'none']", reader.choice("catch_up", ("last", "all", "none"), "last")),
        priority=reader.number("priority", 0),
        retries=reader.number("retries", 2),
        timeout=reader.duration("timeout"),
    )
    registry.add(declaration)


def _check_timing(reader: OptionReader, values: dict[str, Any]) -> None:
    chosen = [name for name in ("cron", "every", "on_change") if values[name] is not None]
    if len(chosen) != 1:
        what = f"it has {' and '.join(chosen)}, but needs one of them" if chosen else "it does not say when"
        reader.reject("cron", what, 'write cron="0 2 * * *", every="10 minutes" or on_change="ods.orders"')
    if values["on_change"] is None:
        for name in [name for name in _ON_CHANGE_OPTIONS if values[name] is not None]:
            reader.reject(name, f"`{name}` goes with on_change", 'write on_change="ods.orders", or leave it out')
    if values["every"] is not None and reader.seconds("every") == 0:
        reader.reject("every", "`every` must be a second at least", 'write every="1 minute"')
    if values["cron"] is not None:
        try:
            cron_syntax.validate_cron(values["cron"])
        except Mistake as mistake:
            reader.report_mistake("cron", mistake)
    if values["tz"] is not None and find_time_zone(values["tz"]) is None:
        reader.reject(
            "tz", f"{quote_value(values['tz'])} is not a time zone", "use a name such as Asia/Shanghai or UTC"
        )
