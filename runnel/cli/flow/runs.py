"""`runnel runs` and `runnel logs`."""

from typing import TYPE_CHECKING, Any

import click

from runnel.cli.output import command, count, grid, lake, print_json, say, when
from runnel.cli.time_report import show_spent
from runnel.client.json_views.run import run_json, seconds_between, times_json

if TYPE_CHECKING:
    from runnel.lake.flow_state.runs import Run


@command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many runs.")
def runs(name: str | None, limit: int, as_json: bool) -> None:
    """List runs, newest first; with RUN what it did to which table, and where its time went."""
    with lake() as opened:
        found = opened.runs(name, limit=limit)
    if as_json:
        print_json(_json(found[0], whole=True) if name else [_json(one) for one in found])
    elif name:
        _show(found[0])
    elif not found:
        click.echo("no runs yet; `runnel run` starts one")
    else:
        rows = [
            [one.id, one.state, one.branch, when(one.started_at), _time(one), (one.commit or "")[:8], _cause(one)]
            for one in found
        ]
        rows = [[*row, _what(one)] for row, one in zip(rows, found, strict=True)]
        headers = ["run", "state", "branch", "started (UTC)", "time", "commit", "by", "what"]
        click.echo(grid(headers, rows, right=[4]))


@command()
@click.argument("name", metavar="RUN")
def logs(name: str, as_json: bool) -> None:
    """Print the log of a run, with the whole trace of every error."""
    from runnel.project.inspection.run_logs import path_of

    with lake() as opened:
        path = path_of(opened, name)
    text = path.read_text(encoding="utf-8", errors="replace")
    if as_json:
        print_json({"run": path.stem, "path": str(path), "text": text})
    else:
        click.echo(text, nl=False)


def _json(one: "Run", *, whole: bool = False) -> dict[str, Any]:
    found = {**run_json(one), "cause": one.detail.get("cause", "user")}
    if not whole:
        return found
    more = {"code": one.detail.get("code_id"), "git": one.detail.get("git"), "packages": one.detail.get("packages")}
    steps, error = one.detail.get("steps", []), one.detail.get("error")
    return {**found, **more, "steps": steps, **times_json(one.detail), "error": error}


def _show(one: "Run") -> None:
    told = f"{one.state} on {one.branch}, started {when(one.started_at)} UTC by {one.author}"
    click.echo(f"run {one.id}  {told}{f', {_time(one)}' if one.ended_at else ''}")
    if one.commit:
        click.echo(f"commit {one.commit}")
    steps = one.detail.get("steps", [])
    did = [step for step in steps if step["state"] != "skipped"]
    if did:
        rows = [
            [
                step["table"],
                step["action"],
                _count(step["rows"]),
                f"{step['seconds']:.1f} s",
                step["state"],
                step["reason"],
            ]
            for step in did
        ]
        click.echo("\n" + grid(["table", "action", "rows", "time", "state", "why"], rows, right=[2, 3]))
    elif one.detail.get("tables"):
        click.echo(f"tables: {', '.join(one.detail['tables'])}")
    if len(did) < len(steps):
        click.echo(f"{count(len(steps) - len(did))} skipped")
    times = times_json(one.detail)
    show_spent(did, times["timeline"], times["spent"])
    if one.detail.get("error"):
        say(f"\n{_told(one.detail['error'])}")
    for step in did:
        for warning in step.get("warnings", ()):
            say(f"warning: {step['table']}: {warning}")
        if step.get("error"):
            say(f"\n{_told(step['error'])}")


def _told(error: dict[str, Any]) -> str:
    at = f"\n  at {error['at']}" if error.get("at") else ""
    fix = f"\n  fix: {error['fix']}" if error.get("fix") else ""
    return f"{error['code']}: {error['what']}{at}{fix}"


def _time(one: "Run") -> str:
    seconds = seconds_between(one.started_at, one.ended_at)
    return "" if seconds is None else f"{seconds:.1f} s"


def _count(rows: int | None) -> str:
    return "" if rows is None else count(rows)


def _cause(one: "Run") -> str:
    """Return who wanted a run: a schedule, or a person."""
    cause = str(one.detail.get("cause", "user"))
    return one.author if cause == "user" else cause.replace("/", " ", 1)


def _what(one: "Run") -> str:
    steps = [step for step in one.detail.get("steps", ()) if step["state"] != "skipped"]
    names = [step["table"] for step in steps] or list(one.detail.get("tables", ()))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
