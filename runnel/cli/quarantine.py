"""`runnel quarantine`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from runnel.cli.base import command, count, grid, lake, print_json, when
from runnel.errors import Mistake
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.quarantine import Aside

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
    from runnel.connect.quarantine import OF
    from runnel.declare.flow import QUARANTINE
    from runnel.lake.movement import size
    from runnel.lake.tables import load

    found = []
    for name, version in opened.store.state(branch).items():
        rows = size(opened.store, version.location).rows if name.layer == QUARANTINE else 0
        if rows:
            of = load(opened.store, version.location).properties.get(OF, "")
            found.append({"table": of, "rows": rows, "quarantine": str(name)})
    if as_json:
        print_json(found)
    elif not found:
        click.echo("nothing is set aside")
    else:
        shown = [[one["table"], f"{one['rows']:,}", one["quarantine"]] for one in found]
        click.echo(grid(["table", "rows", "they are in"], shown, right=[1]))


def _show(opened: "Lake", table: str, file: str | None, branch: str, limit: int, raw: bool, as_json: bool) -> None:
    rows = _rows(opened, table, file, branch)
    shown = rows[:limit] if limit and not raw else rows
    if as_json:
        fields = ("raw", "reason", "file", "run", "at")
        print_json({"table": table, "total": len(rows), "rows": [{f: getattr(r, f) for f in fields} for r in shown]})
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


def _rows(opened: "Lake", table: str, file: str | None, branch: str) -> "list[Aside]":
    from runnel.client.releasing import named
    from runnel.connect.quarantine import held
    from runnel.declare.flow import quarantine_of
    from runnel.errors import nearest

    state, of = opened.store.state(branch), named(opened, table, branch)
    if of not in state and quarantine_of(of) not in state:
        close = nearest(str(of), [str(name) for name in state])
        what = f"there is no table `{of}` on branch `{branch}`" + (f"; close: `{close}`" if close else "")
        raise Mistake("QUARANTINE_UNKNOWN", what, fix="`runnel quarantine` lists what is set aside")
    return held(opened.store, of, branch, file)


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
