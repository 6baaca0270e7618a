"""`runnel quarantine`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, format_count, format_table, format_time, open_lake, print_json
from runnel.names import TableName
from runnel.project.inspection.quarantine import quarantined_row_json

if TYPE_CHECKING:
    from runnel.client.lake import Lake

_MAX_ROW_LENGTH = 60


@command()
@click.argument("table", required=False)
@click.argument("action", required=False, type=click.Choice(["release"]), metavar="[release]")
@click.argument("corrected", required=False, metavar="[FILE]")
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option("--file", default=None, metavar="NAME", help="Only rows that came from this file.")
@click.option("--limit", default=20, show_default=True, help="How many rows to show; 0 shows all.")
@click.option("--raw", is_flag=True, help="Print the rows as they arrived, so that you can correct them.")
def quarantine(
    table: str | None,
    action: str | None,
    corrected: str | None,
    branch: str,
    file: str | None,
    limit: int,
    raw: bool,
    as_json: bool,
) -> None:
    """Show the rows of TABLE that were set aside, and why; `release` processes them again.

    With FILE, `release` processes the corrected rows in it instead. Without TABLE, list all tables with such rows.
    """
    with open_lake() as project_lake:
        if table is None:
            _list_tables(project_lake, branch, as_json)
        elif action == "release":
            _release_rows(project_lake, table, corrected, file, branch, as_json)
        else:
            _show_rows(project_lake, table, file, branch, limit, raw, as_json)


def _list_tables(project_lake: "Lake", branch: str, as_json: bool) -> None:
    entries = project_lake.quarantines(branch=branch)
    if as_json:
        print_json([entry.json() for entry in entries])
    elif not entries:
        click.echo("no rows are set aside")
    else:
        rows = [[entry.table, format_count(entry.rows), entry.quarantine] for entry in entries]
        click.echo(format_table(["table", "rows", "quarantine table"], rows, right_aligned=[1]))


def _show_rows(
    project_lake: "Lake", table: str, file: str | None, branch: str, limit: int, raw: bool, as_json: bool
) -> None:
    rows = project_lake.quarantine(table, branch=branch, file=file)
    visible_rows = rows[:limit] if limit and not raw else rows
    if as_json:
        print_json({"table": table, "total": len(rows), "rows": [quarantined_row_json(row) for row in visible_rows]})
        return
    if raw:
        for row in visible_rows:
            click.echo(row.raw or "")
        return
    if not rows:
        click.echo(f"no row of {table} is set aside")
        return
    cells = [[format_time(row.at.isoformat()), row.reason, _shorten_row(row.raw)] for row in visible_rows]
    click.echo(format_table(["set aside (UTC)", "why", "row"], cells))
    if len(visible_rows) < len(rows):
        click.echo(f"{len(rows) - len(visible_rows):,} more; --limit 0 shows all")
    click.echo(f"`runnel quarantine {table} release` processes them again, or the corrected rows of a FILE instead")


def _release_rows(
    project_lake: "Lake", table: str, corrected: str | None, file: str | None, branch: str, as_json: bool
) -> None:
    result = project_lake.release(table, Path(corrected) if corrected else None, file=file, branch=branch)
    if as_json:
        commit = result.commit.id if result.commit else None
        print_json({"table": table, "rows": result.rows, "taken": result.accepted, "bad": result.bad, "commit": commit})
    elif result.commit is None:
        click.echo(f"{format_count(result.rows, 'row')} of {TableName.parse(table)}: all still bad; nothing changed")
    else:
        still_bad = f"; {format_count(result.bad, 'row')} still bad" if result.bad else ""
        click.echo(
            f"{format_count(result.accepted, 'row')} went into {table}{still_bad}, commit {result.commit.id[:8]}"
        )


def _shorten_row(text: str | None) -> str:
    flat = " ".join((text or "").split())
    return flat if len(flat) <= _MAX_ROW_LENGTH else flat[: _MAX_ROW_LENGTH - 3] + "..."
