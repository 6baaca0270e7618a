"""`runnel runs` and `runnel logs`."""

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
from runnel.cli.time_report import show_time_report
from runnel.client.json_views.run import attempt_json, run_json, seconds_between, times_json
from runnel.model.work_place import WorkPlace

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.lake.flow_state.runs import Run


@command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of runs."
)
def runs(name: str | None, limit: int, as_json: bool) -> None:
    """List runs, newest first; with RUN what it did to which table, its attempts, and where its time went."""
    with open_lake() as project_lake:
        home = project_lake.settings.home
        run_list = project_lake.runs(name, limit=limit)
    if as_json:
        print_json(_build_json(run_list[0], with_details=True) if name else [_build_json(run) for run in run_list])
    elif name:
        _show_run(run_list[0], home)
    elif not run_list:
        print_text("no runs yet; `runnel run` starts one")
    else:
        print_text(_format_list(run_list))


def _format_list(run_list: "list[Run]") -> str:
    """Return the list of runs; the column of scheduled times is left out if none has one.

    A narrow terminal shows fewer columns, but whole names of runs, which people copy; they begin with the start.
    """
    headers = ["run", "state", "branch", "started (UTC)", "time", "commit", "by", "scheduled (UTC)", "what"]
    rows = [
        [
            run.id,
            run.state,
            run.branch,
            format_time(run.started_at),
            _format_duration(run),
            (run.commit or "")[:8],
            _describe_cause(run),
            format_time(run.scheduled_at or ""),
            _list_tables(run),
        ]
        for run in run_list
    ]
    if not any(run.scheduled_at for run in run_list):
        headers, rows = [*headers[:7], headers[8]], [[*row[:7], row[8]] for row in rows]
        return format_table(headers, rows, right_aligned=[4], uncut=[0, 1, 3], optional=[2, 3, 5, 6])
    return format_table(headers, rows, right_aligned=[4], uncut=[0, 1, 3, 7], optional=[2, 3, 5, 6, 7])


@command()
@click.argument("name", metavar="RUN")
@click.option(
    "--attempt", type=click.IntRange(min=1), default=None, metavar="N", help="Only attempt N; all by default."
)
def logs(name: str, attempt: int | None, as_json: bool) -> None:
    """Print the logs of all attempts of a run, with the whole trace of every error."""
    from runnel.project.inspection.run_logs import find_logs

    with open_lake() as project_lake:
        attempt_logs = find_logs(project_lake, name, attempt)
    if not as_json:
        for log in attempt_logs:
            print_text(log.text, nl=False)
        return
    attempts = [
        {"attempt": log.attempt, "run": log.run, "path": str(log.path), "text": log.text} for log in attempt_logs
    ]
    last_log = attempt_logs[-1]
    text = "".join(log.text for log in attempt_logs)
    print_json({"run": last_log.run, "path": str(last_log.path), "text": text, "attempts": attempts})


def _build_json(run: "Run", *, with_details: bool = False) -> dict[str, Any]:
    summary = {**run_json(run), "cause": run.detail.get("cause", "user")}
    if not with_details:
        return summary
    provenance = {
        "code": run.detail.get("code_id"),
        "git": run.detail.get("git"),
        "packages": run.detail.get("packages"),
    }
    steps, error = run.detail.get("steps", []), run.detail.get("error")
    attempts = [attempt_json(attempt) for attempt in run.attempts]
    return {
        **summary,
        **provenance,
        "steps": steps,
        **times_json(run.detail),
        "error": error,
        "attempts": attempts,
    }


def _show_run(run: "Run", home: "Path") -> None:
    headline = f"{run.state} on {run.branch}, started {format_time(run.started_at)} UTC by {run.author}"
    print_text(f"run {run.id}  {headline}{f', {_format_duration(run)}' if run.ended_at else ''}")
    if run.scheduled_at:
        print_text(f"scheduled for {format_time(run.scheduled_at)} UTC by {_describe_cause(run)}")
    if run.commit:
        print_text(f"commit {run.commit}")
    _show_attempts(run, home)
    steps = run.detail.get("steps", [])
    executed_steps = [step for step in steps if step["state"] != "skipped"]
    if executed_steps:
        rows = [
            [
                step["table"],
                step["action"],
                _format_rows(step["rows"]),
                f"{step['seconds']:.1f} s",
                step["state"],
                _describe_step(step),
            ]
            for step in executed_steps
        ]
        headers = ["table", "action", "rows", "time", "state", "why"]
        print_text("\n" + format_table(headers, rows, right_aligned=[2, 3], wrapped=[5]))
    elif run.detail.get("tables"):
        print_text(f"tables: {', '.join(run.detail['tables'])}")
    if len(executed_steps) < len(steps):
        print_text(f"{format_count(len(steps) - len(executed_steps))} skipped")
    for step in executed_steps:
        if place := step.get("place"):
            print_text(f"{step['table']} was read {WorkPlace(place['name'], place['reason']).describe()}")
    times = times_json(run.detail)
    show_time_report(executed_steps, times["timeline"], times["spent"])
    if run.detail.get("error"):
        print_to_stderr(f"\n{_format_error(run.detail['error'])}")
    for step in executed_steps:
        for warning in step.get("warnings", ()):
            print_to_stderr(f"warning: {step['table']}: {warning}")
        if step.get("error"):
            print_to_stderr(f"\n{_format_error(step['error'])}")


def _describe_step(step: dict[str, Any]) -> str:
    """Return why a step was done, and how many rows it set aside."""
    set_aside = f"{format_count(step['set_aside'], 'row')} set aside" if step.get("set_aside") else ""
    return "; ".join(filter(None, [step["reason"], set_aside]))


def _show_attempts(run: "Run", home: "Path") -> None:
    """Print each attempt with its times, worker, log and reason; of the only attempt what is not shown elsewhere."""
    attempts = [attempt_json(attempt) for attempt in run.attempts]
    if len(attempts) == 1:
        worker = f"worker {attempts[0]['worker']}, " if attempts[0]["worker"] else ""
        print_text(f"{worker}log {home / attempts[0]['log']}")
        return
    for attempt in attempts:
        ended = f" to {format_time(attempt['ended_at'])}" if attempt["ended_at"] else ""
        worker = f", worker {attempt['worker']}" if attempt["worker"] else ""
        times = f"{format_time(attempt['started_at'])}{ended} UTC"
        print_text(f"attempt {attempt['attempt']}: {attempt['state']}, {times}{worker}")
        print_text(f"  log {home / attempt['log']}")
        if attempt["error"]:
            print_text(f"  {attempt['error']['code']}: {attempt['error']['what']}")


def _format_error(error: dict[str, Any]) -> str:
    at = f"\n  at {error['at']}" if error.get("at") else ""
    fix = f"\n  fix: {error['fix']}" if error.get("fix") else ""
    return f"{error['code']}: {error['what']}{at}{fix}"


def _format_duration(run: "Run") -> str:
    seconds = seconds_between(run.started_at, run.ended_at)
    return "" if seconds is None else f"{seconds:.1f} s"


def _format_rows(rows: int | None) -> str:
    return "" if rows is None else format_count(rows)


def _describe_cause(run: "Run") -> str:
    """Return who requested a run: a schedule or a person."""
    cause = str(run.detail.get("cause", "user"))
    return run.author if cause == "user" else cause.replace("/", " ", 1)


def _list_tables(run: "Run") -> str:
    steps = [step for step in run.detail.get("steps", ()) if step["state"] != "skipped"]
    names = [step["table"] for step in steps] or list(run.detail.get("tables", ()))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
