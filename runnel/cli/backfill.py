"""`runnel backfill`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.base import command, count, grid, lake, print_json, say, size

if TYPE_CHECKING:
    from runnel.client.backfilling import Backfilled, Preview


@command()
@click.option("-s", "--select", multiple=True, required=True, metavar="SEL", help="Which tables: dws.*, tag:daily.")
@click.option("--from", "first", required=True, metavar="DAY", help="The first day.")
@click.option("--to", "last", required=True, metavar="DAY", help="The last day, which is included.")
@click.option("--chunk", default=None, metavar="DAYS", help="How many days a run and a commit have, such as 7d.")
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
@click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="Set a parameter of tasks.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
def backfill(
    select: tuple[str, ...],
    first: str,
    last: str,
    chunk: str | None,
    branch: str,
    values: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compute the slices of some days again, with everything downstream; sources are not read."""
    from runnel.cli.watch import watching
    from runnel.client import backfilling
    from runnel.client.planning import flow_of

    wish, number = backfilling.wished(select, first, last, chunk=chunk, branch=branch)
    with lake(overrides=values) as opened:
        flow = flow_of(opened)
        if dry_run or (sys.stderr.isatty() and not as_json):
            found = backfilling.preview(opened, wish, number, flow)
            if dry_run:
                print_json(found.json()) if as_json else click.echo(_text(found))
                return
            say(_text(found) + "\n")
        with watching(quiet=as_json) as watch:
            done = backfilling.backfill(opened, wish, number, flow=flow, watch=watch)
    if as_json:
        print_json(done.json())
    else:
        _show(done)
    sys.exit({"failed": 1, "cancelled": 130}.get(done.state, 0))


def _text(found: "Preview") -> str:
    rows = [
        [
            line.table,
            line.action,
            "" if line.slices is None else count(line.slices),
            count(line.rows) if line.chunks else "",
            size(line.bytes) if line.chunks else "",
            line.reason,
        ]
        for line in found.lines
    ]
    bound = "at least" if any(line.chunks and line.bytes is None for line in found.lines) else "about"
    chunks = f"{count(len(found.chunks), 'chunk')}, a run and a commit each"
    total = f"reads {bound} {count(found.rows, 'row')}, {size(found.bytes)}; {chunks}; on {found.branch}"
    return grid(["table", "action", "slices", "rows", "bytes", "why"], rows, right=[2, 3, 4]) + f"\n\n{total}"


def _show(done: "Backfilled") -> None:
    from runnel.cli.run import show

    for number, (chunk, run) in enumerate(zip(done.chunks, done.runs, strict=False), 1):
        if len(done.chunks) > 1:
            click.echo(("\n" if number > 1 else "") + f"chunk {number} of {len(done.chunks)}: {chunk}")
        show(run)
    if done.next is not None:
        finished = sum(run.state in ("succeeded", "nothing") for run in done.runs)
        say(f"{finished} of {count(len(done.chunks), 'chunk')} finished; go on with --from {done.next.first}")
