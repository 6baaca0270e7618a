"""`runnel runs` and `runnel logs`."""

from typing import TYPE_CHECKING, Any

import click

from runnel.cli.output import command, format_count, format_table, format_time, open_lake, print_json, print_to_stderr
from runnel.cli.time_report import show_time_report
from runnel.client.json_views.run import run_json, seconds_between, times_json

if TYPE_CHECKING:
    from runnel.lake.flow_state.runs import Run


@command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of runs."
)
def runs(name: str | None, limit: int, as_json: bool) -> None:
    """List runs, newest first; with RUN what it did to which table, and where its time went."""
    with open_lake() as project_lake:
        run_list = project_lake.runs(name, limit=limit)
    if as_json:
        print_json(_build_json(run_list[0], with_details=True) if name else [_build_json(run) for run in run_list])
    elif name:
        _show_run(run_list[0])
    elif not run_list:
        click.echo("no runs yet; `runnel run` starts one")
    else:
        rows = [
            [
                run.id,
                run.state,
                run.branch,
                format_time(run.started_at),
                _format_duration(run),
                (run.commit or "")[:8],
                _describe_cause(run),
            ]
            for run in run_list
        ]
        rows = [[*row, _list_tables(run)] for row, run in zip(rows, run_list, strict=True)]
        headers = ["run", "state", "branch", "started (UTC)", "time", "commit", "by", "what"]
        click.echo(format_table(headers, rows, right_aligned=[4]))


@command()
@click.argument("name", metavar="RUN")
def logs(name: str, as_json: bool) -> None:
    """Print the log of a run, with the whole trace of every error."""
    from runnel.project.inspection.run_logs import find_log_path

    with open_lake() as project_lake:
        path = find_log_path(project_lake, name)
    text = path.read_text(encoding="utf-8", errors="replace")
    if as_json:
        print_json({"run": path.stem, "path": str(path), "text": text})
    else:
        click.echo(text, nl=False)


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
    return {**summary, **provenance, "steps": steps, **times_json(run.detail), "error": error}


def _show_run(run: "Run") -> None:
    headline = f"{run.state} on {run.branch}, started {format_time(run.started_at)} UTC by {run.author}"
    click.echo(f"run {run.id}  {headline}{f', {_format_duration(run)}' if run.ended_at else ''}")
    if run.commit:
        click.echo(f"commit {run.commit}")
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
                step["reason"],
            ]
            for step in executed_steps
        ]
        click.echo("\n" + format_table(["table", "action", "rows", "time", "state", "why"], rows, right_aligned=[2, 3]))
    elif run.detail.get("tables"):
        click.echo(f"tables: {', '.join(run.detail['tables'])}")
    if len(executed_steps) < len(steps):
        click.echo(f"{format_count(len(steps) - len(executed_steps))} skipped")
    times = times_json(run.detail)
    show_time_report(executed_steps, times["timeline"], times["spent"])
    if run.detail.get("error"):
        print_to_stderr(f"\n{_format_error(run.detail['error'])}")
    for step in executed_steps:
        for warning in step.get("warnings", ()):
            print_to_stderr(f"warning: {step['table']}: {warning}")
        if step.get("error"):
            print_to_stderr(f"\n{_format_error(step['error'])}")


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
