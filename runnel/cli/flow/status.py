"""`runnel status`: show the state of the service, streams and sources; `runnel stream reset`: restart a stream."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from runnel.cli.output import (
    command,
    format_count,
    format_size,
    format_table,
    format_time,
    open_lake,
    print_json,
    print_text,
    print_to_stderr,
)
from runnel.lake.catalog.database import parse_time

if TYPE_CHECKING:
    from runnel.project.inspection.stream_health import StreamHealth

_OUTDATED = timedelta(minutes=2)


@command()
@click.option("--branch", default=None, metavar="B", help="Only this branch.")
@click.option("--series", "table", default=None, metavar="TABLE", help="Show what each batch of this table did.")
@click.option("--minutes", default=60, metavar="N", help="Minutes that --series covers; 60 by default.")
def status(branch: str | None, table: str | None, minutes: int, as_json: bool) -> None:
    """Show the state of the service, of streams and continuously read sources, and open alarms."""
    with open_lake() as project_lake:
        if table is not None:
            from runnel.names import TableName
            from runnel.project.inspection.stream_health import read_measures

            batches = read_measures(project_lake, TableName.parse(table), branch or "main", minutes)
            print_json([{"at": entry.at, "commit": entry.commit, **entry.detail} for entry in batches])
            return
        overview = project_lake.status(branch=branch)
        if as_json:
            print_json(overview.json())
            return
        quarantines = project_lake.quarantines(branch=branch or "main")
    streams, presence, alarms = overview.streams, overview.presence, overview.alarms
    for line in [*presence.lines(), *(line for entry in alarms for line in [*entry.lines(), ""])]:
        print_text(line)
    if quarantines:
        set_aside = [f"{format_count(entry.rows, 'row')} of {entry.table}" for entry in quarantines]
        print_text(f"set aside: {', '.join(set_aside)}; `runnel quarantine TABLE` shows them\n")
    if not streams:
        return
    rows = [_build_row(entry) for entry in streams]
    headers = ["table", "kind", "state", "rows/s", "batch", "behind", "remembers", "last batch (UTC)"]
    print_text(format_table(headers, rows, right_aligned=[3, 4, 5, 6]))
    for entry in streams:
        if entry.problem:
            print_to_stderr(f"\n{entry.table}, {entry.state} since {format_time(entry.since)}: {entry.problem}")
        for warning in entry.warnings:
            print_to_stderr(f"\nwarning: {entry.table}: {warning}")


@click.group("stream", context_settings={"help_option_names": ["-h", "--help"]})
def stream() -> None:
    """Repair streams."""


@stream.command("reset")
@click.argument("task")
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def reset(task: str, branch: str, as_json: bool) -> None:
    """Restart the stream of the table TASK from the beginning, with all existing rows."""
    with open_lake() as project_lake:
        table = project_lake.reset_stream(task, branch=branch)
    if as_json:
        print_json({"table": table, "branch": branch, "state": "reset"})
    else:
        print_text(
            f"{table} starts again from the beginning: the next run, or `runnel up`, "
            "reads all existing rows\nand replaces the rows that the stream has written so far"
        )


def _build_row(health: "StreamHealth") -> list[str]:
    batch = f"{health.batch_ms / 1000:.2f} s" if health.batch_ms is not None else ""
    state_text = f"{format_count(health.state_rows)} ({format_size(health.state_bytes)})" if health.state_rows else ""
    batch_time = format_time(health.batch_at) if health.batch_at else ""
    rate, behind = f"{health.rows_per_second:,.0f}", _describe_backlog(health)
    return [str(health.table), health.kind, health.state, rate, batch, behind, state_text, batch_time]


def _describe_backlog(health: "StreamHealth") -> str:
    """Return how much a stream or source has not read, and how old it is; when that was seen, if it is not current."""
    parts = []
    if health.behind_seconds == 0:
        parts.append("nothing")
    else:
        if health.behind_rows is not None:
            parts.append(format_count(health.behind_rows, "row"))
        elif health.behind_files is not None:
            parts.append(f"{format_count(health.behind_files, 'file')} ({format_size(health.behind_bytes or 0)})")
        if health.behind_seconds is not None:
            parts.append(_format_seconds(health.behind_seconds))
    if parts and health.looked_at is not None and _is_outdated(health):
        parts.append(f"seen {format_time(health.looked_at)}")
    return ", ".join(parts) or "?"


def _is_outdated(health: "StreamHealth") -> bool:
    """Return whether nobody has looked at a source for longer than a worker that reads it would wait."""
    assert health.looked_at is not None
    return health.state != "running" or datetime.now(UTC) - parse_time(health.looked_at) > _OUTDATED


def _format_seconds(seconds: float) -> str:
    """Return a duration for people.

    >>> _format_seconds(0.25), _format_seconds(90.0), _format_seconds(7200.0)
    ('0.2 s', '1.5 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
