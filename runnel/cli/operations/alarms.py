"""`runnel alarms`: list alarms; acknowledge, mute and dismiss them."""

from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, format_time, open_lake, print_json, print_text
from runnel.errors import Mistake, did_you_mean

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.notifications import Mute

_ACTIONS = {"ack": "ID", "mute": "ID|KIND|TABLE", "unmute": "ID|KIND|TABLE", "dismiss": "ID"}


@command()
@click.argument("action", required=False, metavar="[ack|mute|unmute|dismiss]")
@click.argument("subject", required=False, metavar="[ID|KIND|TABLE]")
@click.option("--all", "show_all", is_flag=True, help="Also list alarms of the last 30 days that are over.")
@click.option("--note", default=None, metavar="TEXT", help="A note for others, with `ack` or `dismiss`.")
@click.option("--for", "duration", default=None, metavar="DURATION", help="How long to mute, such as '2 hours'.")
def alarms(
    action: str | None, subject: str | None, show_all: bool, note: str | None, duration: str | None, as_json: bool
) -> None:
    """List open alarms; `ack` says that you take care of one, `mute` stops notifications, `dismiss` closes one."""
    if action is not None:
        subject = _check_arguments(action, subject, note, duration)
    with open_lake() as project_lake:
        if action is None:
            _list_alarms(project_lake, show_all, as_json)
        elif action in ("ack", "dismiss"):
            _change_alarm(project_lake, action, subject or "", note, as_json)
        else:
            _change_mute(project_lake, action, subject or "", duration, as_json)


def _check_arguments(action: str, subject: str | None, note: str | None, duration: str | None) -> str:
    """Return the subject; raise if it is missing, or an option does not belong to the action."""
    if action not in _ACTIONS:
        what = f"`runnel alarms` can't `{action}`" + did_you_mean(action, _ACTIONS)
        raise Mistake("COMMAND_UNKNOWN", what, fix=f"write one of {', '.join(_ACTIONS)}, or nothing to list alarms")
    if subject is None:
        which = f"which alarm? write `runnel alarms {action} {_ACTIONS[action]}`"
        raise click.UsageError(f"{which}; `runnel alarms` lists them")
    if action == "mute" and duration is None:
        raise click.UsageError(f"for how long? write `runnel alarms mute {subject} --for '2 hours'`")
    if action != "mute" and duration is not None:
        raise click.UsageError("--for belongs to `runnel alarms mute`")
    if action not in ("ack", "dismiss") and note is not None:
        raise click.UsageError("--note belongs to `runnel alarms ack` and `runnel alarms dismiss`")
    return subject


def _list_alarms(project_lake: "Lake", show_all: bool, as_json: bool) -> None:
    statuses, mutes = project_lake.alarms("all" if show_all else "open"), project_lake.mutes()
    if as_json:
        print_json({"alarms": [status.json() for status in statuses], "mutes": [mute.json() for mute in mutes]})
        return
    if not statuses:
        print_text("no alarms" if show_all else "no open alarms; `runnel alarms --all` also lists those that are over")
    for status in statuses:
        print_text("\n".join([*status.lines(), ""]))
    for mute in mutes:
        print_text(f"muted: {_describe_mute(mute)}, by {mute.muted_by}")


def _change_alarm(project_lake: "Lake", action: str, subject: str, note: str | None, as_json: bool) -> None:
    change = project_lake.acknowledge_alarm if action == "ack" else project_lake.dismiss_alarm
    status = change(subject, note=note)
    if as_json:
        print_json(status.json())
    elif action == "ack":
        print_text(f"acknowledged: {status.alarm.headline}\nno further notification until it is over")
    else:
        print_text(f"dismissed: {status.alarm.headline}")
        print_text("it comes back only with a new failure; `runnel alarms mute` stops notifications for a time")


def _change_mute(project_lake: "Lake", action: str, subject: str, duration: str | None, as_json: bool) -> None:
    mute = project_lake.mute(subject, duration or "") if action == "mute" else project_lake.unmute(subject)
    if as_json:
        print_json(mute.json())
    elif action == "mute":
        print_text(f"muted: {_describe_mute(mute)}; `runnel alarms unmute {subject}` ends it")
    else:
        print_text(f"no longer muted: {mute.kind} {mute.subject}")


def _describe_mute(mute: "Mute") -> str:
    return f"{mute.kind} {mute.subject} until {format_time(mute.muted_until)} UTC"
