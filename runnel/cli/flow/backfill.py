"""`runnel backfill` and `runnel backfills`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, count, grid, lake, print_json, say, size

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.backfills import Backfill
    from runnel.project.execution.backfill import Backfilled, Preview
    from runnel.project.planning.run_request import Wish
    from runnel.run.results.run_result import Watch


@command()
@click.option("-s", "--select", multiple=True, required=True, metavar="SEL", help="Which tables: dws.*, tag:daily.")
@click.option("--from", "first", required=True, metavar="DAY", help="The first day.")
@click.option("--to", "last", required=True, metavar="DAY", help="The last day, which is included.")
@click.option("--chunk", default=None, metavar="DAYS", help="How many days a run and a commit have, such as 7d.")
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
@click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="Set a parameter of tasks.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--local", is_flag=True, help="Compute in this process, also when a worker is there.")
@click.option("--wait/--no-wait", default=True, help="Wait until a worker has done it; the default.")
def backfill(
    select: tuple[str, ...],
    first: str,
    last: str,
    chunk: str | None,
    branch: str,
    values: tuple[str, ...],
    dry_run: bool,
    local: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Compute the slices of some days again, with everything downstream; sources are not read."""
    from runnel.cli.run_progress import watching
    from runnel.project.execution import backfill
    from runnel.project.planning.plan_project import flow_of

    wish, number = backfill.wished(select, first, last, chunk=chunk, branch=branch)
    with lake(overrides=values) as opened:
        flow = flow_of(opened)
        if dry_run or (sys.stderr.isatty() and not as_json):
            found = backfill.preview(opened, wish, number, flow)
            if dry_run:
                print_json(found.json()) if as_json else click.echo(_text(found))
                return
            say(_text(found) + "\n")
        with watching(quiet=as_json) as watch:
            name = None if local else _submitted(opened, wish, number, values)
            if name is not None and not wait:
                print_json({"backfill": name}) if as_json else click.echo(f"backfill {name} waits to be computed")
                return
            if name is not None:
                done = _followed(opened, wish, number, name, watch)
            else:
                done = backfill.backfill(opened, wish, number, flow=flow, watch=watch)
    if as_json:
        print_json(done.json())
    else:
        _show(done)
    sys.exit({"failed": 1, "cancelled": 130}.get(done.state, 0))


@command()
@click.argument("action", required=False, type=click.Choice(["pause", "resume", "cancel"]))
@click.argument("name", required=False, metavar="[BACKFILL]")
def backfills(action: str | None, name: str | None, as_json: bool) -> None:
    """List backfills that workers compute; pause, resume or cancel one."""
    from runnel.lake.control import backfills

    if action is not None and name is None:
        raise click.UsageError(f"which backfill? write `runnel backfills {action} BACKFILL`")
    with lake() as opened:
        db = opened.store.db
        if action is not None and name is not None:
            change = {"pause": backfills.pause, "resume": backfills.resume, "cancel": backfills.cancel}[action]
            found = [change(db, name)]
        else:
            found = db.read(lambda connection: backfills.backfills(connection, 20))
    if as_json:
        print_json(found[0].json() if action else [one.json() for one in found])
    elif not found:
        click.echo("no backfills yet; `runnel backfill` queues one where a worker is there")
    else:
        rows = [_line(one) for one in found]
        click.echo(grid(["backfill", "state", "branch", "days", "chunks done", "by", "selects"], rows))


def _line(one: "Backfill") -> list[str]:
    done = sum(chunk.state in ("succeeded", "nothing") for chunk in one.chunks)
    days = f"{one.chunks[0].wish['days'][0]} to {one.chunks[-1].wish['days'][1]}"
    select = " ".join(one.wish.get("select", ()))
    return [one.id, one.state, one.branch, days, f"{done} of {len(one.chunks)}", one.author, select]


def _submitted(opened: "Lake", wish: "Wish", number: int | None, values: tuple[str, ...]) -> str | None:
    """Hand a backfill to a worker that is there, and return its id; None where nobody is."""
    from runnel.cli.output import chosen
    from runnel.project.execution.follow_run import is_served, submit_backfill
    from runnel.project.planning.run_request_json import Asked

    if not is_served(opened):
        return None
    assert wish.days is not None
    asked = Asked(wish, None, (*chosen().get("overrides", ()), *values))
    return submit_backfill(opened, asked, wish.days.chunks(number))


def _followed(opened: "Lake", wish: "Wish", number: int | None, name: str, watch: "Watch | None") -> "Backfilled":
    from runnel.project.execution.backfill import Backfilled
    from runnel.project.execution.follow_run import follow_backfill

    assert wish.days is not None
    runs = follow_backfill(opened, name, watch, say)
    ended = runs[-1].state
    state = ended if ended in ("failed", "cancelled") else "succeeded" if any(run.commit for run in runs) else "nothing"
    return Backfilled(wish.days, wish.days.chunks(number), tuple(runs), state)


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
    from runnel.cli.flow.run import show

    for number, (chunk, run) in enumerate(zip(done.chunks, done.runs, strict=False), 1):
        if len(done.chunks) > 1:
            click.echo(("\n" if number > 1 else "") + f"chunk {number} of {len(done.chunks)}: {chunk}")
        show(run)
    if done.next is not None:
        finished = sum(run.state in ("succeeded", "nothing") for run in done.runs)
        say(f"{finished} of {count(len(done.chunks), 'chunk')} finished; go on with --from {done.next.first}")
