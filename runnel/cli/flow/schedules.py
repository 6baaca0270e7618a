"""`runnel schedules`: when what is run, and pausing it."""

from typing import TYPE_CHECKING, Any

import click

from runnel.cli.output import command, grid, lake, print_json, say, when

if TYPE_CHECKING:
    from runnel.project.inspection.schedule_list import Line


@command()
@click.argument("action", required=False, type=click.Choice(["pause", "resume"]))
@click.argument("name", required=False)
def schedules(action: str | None, name: str | None, as_json: bool) -> None:
    """List schedules with when each is due next; pause or resume one."""
    if action is not None and name is None:
        raise click.UsageError(f"which schedule? write `runnel schedules {action} NAME`")
    with lake() as opened:
        if action is not None and name is not None:
            (opened.pause_schedule if action == "pause" else opened.resume_schedule)(name)
        lines = opened.schedules()
    if as_json:
        print_json([line.json() for line in lines])
    elif action is not None:
        click.echo(f"{name} is {'paused' if action == 'pause' else 'resumed'}")
    elif not lines:
        click.echo('no schedules yet: rn.schedule("nightly", cron="0 2 * * *") in a flow file makes one')
    else:
        rows = [_row(line) for line in lines]
        click.echo(grid(["schedule", "when", "selects", "next (UTC)", "last", "state"], rows))
        for line in lines:
            if line.problem:
                say(f"\nschedule {line.name} queues nothing: {line.problem}")


def _row(line: "Line") -> list[Any]:
    due = when(line.next_at) if line.next_at else ""
    last = f"{line.last_state} {when(line.last_at)}" if line.last_at else ""
    state = "broken" if line.problem else "paused" if line.is_paused else "on"
    return [line.name, line.when, line.select or "everything", due, last, state]
