"""`runnel quarantine`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, count, grid, lake, print_json, when
from runnel.names import TableName
from runnel.project.inspection.quarantine import aside_json

if TYPE_CHECKING:
    from runnel.client.lake import Lake

_SHORT = 60


@command()
@click.argument("table", required=False)
@click.argument("action", required=False, type=click.Choice(["release"]), metavar="[release]")
@click.argument("corrected", required=False, metavar="[FILE]")
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
@click.option("--file", default=None, metavar="NAME", help="Only rows that came from this file.")
@click.option("--limit", default=20, show_default=True, help="How many rows to show; 0 shows all.")
@click.option("--raw", is_flag=True, help="Print the rows as they came, to correct them.")
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
    """Show the rows of TABLE that were set aside, and why; `release` sends them through again.

    With FILE the rows in it take their place, corrected. Without TABLE, list what is set aside.
    """
    with lake() as opened:
        if table is None:
            _list(opened, branch, as_json)
        elif action == "release":
            _release(opened, table, corrected, file, branch, as_json)
        else:
            _show(opened, table, file, branch, limit, raw, as_json)


def _list(opened: "Lake", branch: str, as_json: bool) -> None:
    found = opened.quarantines(branch=branch)
    if as_json:
        print_json([one.json() for one in found])
    elif not found:
        click.echo("nothing is set aside")
    else:
        shown = [[one.table, count(one.rows), one.quarantine] for one in found]
        click.echo(grid(["table", "rows", "they are in"], shown, right=[1]))


def _show(opened: "Lake", table: str, file: str | None, branch: str, limit: int, raw: bool, as_json: bool) -> None:
    rows = opened.quarantine(table, branch=branch, file=file)
    shown = rows[:limit] if limit and not raw else rows
    if as_json:
        print_json({"table": table, "total": len(rows), "rows": [aside_json(row) for row in shown]})
        return
    if raw:
        for row in shown:
            click.echo(row.raw or "")
        return
    if not rows:
        click.echo(f"no row of {table} is set aside")
        return
    columns = [[when(row.at.isoformat()), row.reason, _shortened(row.raw)] for row in shown]
    click.echo(grid(["set aside (UTC)", "why", "row"], columns))
    if len(shown) < len(rows):
        click.echo(f"{len(rows) - len(shown):,} more; --limit 0 shows all")
    click.echo(f"`runnel quarantine {table} release` sends them through again, with a FILE those in it instead")


def _release(opened: "Lake", table: str, corrected: str | None, file: str | None, branch: str, as_json: bool) -> None:
    done = opened.release(table, Path(corrected) if corrected else None, file=file, branch=branch)
    if as_json:
        commit = done.commit.id if done.commit else None
        print_json({"table": table, "rows": done.rows, "taken": done.taken, "bad": done.bad, "commit": commit})
    elif done.commit is None:
        click.echo(f"{count(done.rows, 'row')} of {TableName.parse(table)}: all still bad; nothing changed")
    else:
        still = f"; {count(done.bad, 'row')} still bad" if done.bad else ""
        click.echo(f"{count(done.taken, 'row')} went into {table}{still}, commit {done.commit.id[:8]}")


def _shortened(text: str | None) -> str:
    flat = " ".join((text or "").split())
    return flat if len(flat) <= _SHORT else flat[: _SHORT - 3] + "..."
