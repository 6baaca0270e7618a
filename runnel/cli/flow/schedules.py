"""`runnel schedules`: list, pause and resume schedules."""

from typing import TYPE_CHECKING, Any

import click

from runnel.cli.output import (
    command,
    format_count,
    format_table,
    format_time,
    open_lake,
    print_json,
    print_text,
    print_to_stderr,
)

if TYPE_CHECKING:
    from runnel.project.inspection.schedule_list import ScheduleStatus


@command()
@click.argument("action", required=False, type=click.Choice(["pause", "resume"]))
@click.argument("name", required=False)
def schedules(action: str | None, name: str | None, as_json: bool) -> None:
    """List schedules and when each is due next; pause or resume one."""
    if action is not None and name is None:
        raise click.UsageError(f"which schedule? write `runnel schedules {action} NAME`")
    with open_lake() as project_lake:
        if action is not None and name is not None:
            (project_lake.pause_schedule if action == "pause" else project_lake.resume_schedule)(name)
        statuses = project_lake.schedules()
    if as_json:
        print_json([status.json() for status in statuses])
    elif action is not None:
        print_text(f"{name} is {'paused' if action == 'pause' else 'resumed'}")
    elif not statuses:
        print_text('no schedules yet: rn.schedule("nightly", cron="0 2 * * *") in a flow file declares one')
    else:
        rows = [_build_row(status) for status in statuses]
        headers = ["schedule", "when", "selects", "next (UTC)", "last", "state"]
        print_text(format_table(headers, rows, uncut=[0, 3, 4], optional=[2, 1]))
        for status in statuses:
            if status.problem:
                print_to_stderr(f"\nschedule {status.name} queues nothing: {status.problem}")
            if status.missed:
                print_to_stderr(f"\n{_describe_missed(status)}")
        if not all(status.has_service for status in statuses):
            print_to_stderr("\nno service is running, so nothing is queued at these times: start it with `runnel up`")


def _describe_missed(status: "ScheduleStatus") -> str:
    """Return which times passed while no service was running, and which of them will be run."""
    if status.missed == 1 and status.last_missed_at:
        times, all_of_them, last_of_them = f"{format_time(status.last_missed_at)} UTC", "it", "it"
    else:
        times, all_of_them, last_of_them = format_count(status.missed, "time"), "all of them", "the last one"
        times += f", the last one at {format_time(status.last_missed_at)} UTC" if status.last_missed_at else " or more"
    run_command = f"runnel run -s '{status.select}'" if status.select else "runnel run"
    outcomes = {
        "last": f"`runnel up` runs {last_of_them}",
        "all": f"`runnel up` runs {all_of_them}",
        "none": f'`runnel up` runs none of them (catch_up="none"): `{run_command}` computes now',
    }
    return f"schedule {status.name} missed {times}: {outcomes.get(status.catch_up, outcomes['last'])}"


def _build_row(status: "ScheduleStatus") -> list[Any]:
    next_time = format_time(status.next_at) if status.next_at else ""
    last_run = f"{status.last_state} {format_time(status.last_at)}" if status.last_at else ""
    state = "broken" if status.problem else "paused" if status.is_paused else "on"
    if state == "on" and not status.has_service:
        state = "no service is running"
    return [status.name, status.when, status.select or "everything", next_time, last_run, state]
