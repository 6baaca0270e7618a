"""`runnel status`: how the service, streams and sources are; `runnel stream reset`: let a stream begin anew."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, count, grid, lake, print_json, say, size, when
from runnel.lake.catalog.database import moment

if TYPE_CHECKING:
    from runnel.project.inspection.stream_health import Health


@command()
@click.option("--branch", default=None, metavar="B", help="Only this branch.")
@click.option("--series", "table", default=None, metavar="TABLE", help="What each batch of a table did.")
@click.option("--minutes", default=60, metavar="N", help="How far back a series goes; 60 by default.")
def status(branch: str | None, table: str | None, minutes: int, as_json: bool) -> None:
    """Show how the service, streams, and sources that are read on and on, are doing, and what is wrong."""
    with lake() as opened:
        if table is not None:
            from runnel.names import TableName
            from runnel.project.inspection.stream_health import series

            batches = series(opened, TableName.parse(table), branch or "main", minutes)
            print_json([{"at": one.at, "commit": one.commit, **one.detail} for one in batches])
            return
        found = opened.status(branch=branch)
    if as_json:
        print_json(found.json())
        return
    shown, there, wrong = found.streams, found.presence, found.alarms
    for line in [*there.lines(), *(line for one in wrong for line in [*one.lines(), ""])]:
        click.echo(line)
    if not shown and there.is_nobody:
        click.echo("nothing goes on by itself yet: `runnel up` schedules, computes, and keeps streams going")
    if not shown:
        return
    rows = [_row(one) for one in shown]
    headers = ["table", "kind", "state", "rows/s", "batch", "behind", "remembers", "last batch (UTC)"]
    click.echo(grid(headers, rows, right=[3, 4, 5, 6]))
    for one in shown:
        if one.problem:
            say(f"\n{one.table}, {one.state} since {when(one.since)}: {one.problem}")
        for warning in one.warnings:
            say(f"\nwarning: {one.table}: {warning}")


@click.group("stream", context_settings={"help_option_names": ["-h", "--help"]})
def stream() -> None:
    """Repair streams."""


@stream.command("reset")
@click.argument("task")
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def reset(task: str, branch: str, as_json: bool) -> None:
    """Let the stream that makes the table TASK begin anew, with all rows that are there."""
    from runnel.project.execution.run_streams import reset_stream

    with lake() as opened:
        was = reset_stream(opened, task, branch)
    if as_json:
        print_json({"table": str(was.table), "branch": branch, "state": "reset"})
    else:
        click.echo(
            f"{was.table} begins anew: the next run, or `runnel up`, reads all rows that are there\n"
            "and puts what it makes of them in the place of the rows that it has made so far"
        )


def _row(one: "Health") -> list[str]:
    batch = f"{one.batch_ms / 1000:.2f} s" if one.batch_ms is not None else ""
    behind = "" if one.behind_seconds is None else _seconds(one.behind_seconds)
    remembers = f"{count(one.state_rows)} ({size(one.state_bytes)})" if one.state_rows else ""
    is_fresh = one.batch_at is not None and (datetime.now(UTC) - moment(one.batch_at)).total_seconds() < 60
    rate = f"{one.rows_per_second:,.0f}" if is_fresh else "0"
    at = when(one.batch_at) if one.batch_at else ""
    return [str(one.table), one.kind, one.state, rate, batch, behind, remembers, at]


def _seconds(seconds: float) -> str:
    """Return a duration as people read it.

    >>> _seconds(0.0), _seconds(0.25), _seconds(90.0), _seconds(7200.0)
    ('nothing', '0.2 s', '1.5 min', '2.0 h')
    """
    if seconds == 0:
        return "nothing"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
