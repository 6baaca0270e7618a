"""`runnel cancel` and `runnel retry`: stop a run, or run again what it was asked for."""

import sys

import click

from runnel.cli.base import command, lake, print_json, say
from runnel.errors import Conflict


@command()
@click.argument("name", metavar="RUN")
@click.option("--wait/--no-wait", default=True, help="Wait until it has stopped; the default.")
def cancel(name: str, wait: bool, as_json: bool) -> None:
    """Stop a run that waits or goes on; nothing of it is published."""
    from runnel.client.following import follow
    from runnel.lake import queue

    with lake() as opened:
        db = opened.store.db
        was = db.read(lambda connection: queue.find(connection, name))
        found = queue.cancel(db, was.id)
        if wait and found.is_open:
            follow(opened, was.id)
            found = db.read(lambda connection: queue.find(connection, was.id))
    if as_json:
        print_json({"run": found.id, "state": found.state, "commit": found.commit})
    elif not was.is_open:
        click.echo(f"run {found.id} had ended before: {found.state}")
    else:
        told = {"cancelled": "is cancelled; nothing of it was published", "running": "is told to stop"}
        click.echo(f"run {found.id} {told.get(found.state, f'has {found.state}: it was too late to stop it')}")


@command()
@click.argument("name", metavar="RUN")
def retry(name: str, as_json: bool) -> None:
    """Run again what a run was asked for; what it finished is known."""
    from runnel.cli.run import show
    from runnel.cli.watch import watching
    from runnel.client.following import follow, is_served, submit
    from runnel.client.running import run_project
    from runnel.client.wishes import asked
    from runnel.lake import queue

    with lake() as opened, watching(quiet=as_json) as watch:
        was = opened.store.db.read(lambda connection: queue.find(connection, name))
        if was.is_open:
            raise Conflict("RUN_OPEN", f"run {was.id} is still {was.state}", fix=f"`runnel cancel {was.id}` stops it")
        wanted = asked(was)
        if is_served(opened):
            done = follow(opened, submit(opened, wanted), watch, say)
        else:
            done = run_project(opened, wanted.wish, message=wanted.message, watch=watch)
    if as_json:
        print_json(done.json())
    else:
        show(done)
    sys.exit(done.exit_code)
