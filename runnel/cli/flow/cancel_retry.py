"""`runnel cancel` and `runnel retry`: stop a run, or run again what it was asked for."""

import sys

import click

from runnel.cli.output import command, lake, print_json, say


@command()
@click.argument("name", metavar="RUN")
@click.option("--wait/--no-wait", default=True, help="Wait until it has stopped; the default.")
def cancel(name: str, wait: bool, as_json: bool) -> None:
    """Stop a run that waits or goes on; nothing of it is published."""
    from runnel.lake.control import run_queue
    from runnel.project.execution.follow_run import cancel as stop

    with lake() as opened:
        was = opened.store.db.read(lambda connection: run_queue.find(connection, name))
        found = stop(opened, was.id, wait=wait)
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
    from runnel.cli.flow.run import show
    from runnel.cli.run_progress import watching
    from runnel.project.execution.follow_run import retry as again

    with lake() as opened, watching(quiet=as_json) as watch:
        done = again(opened, name, watch, say)
    if as_json:
        print_json(done.json())
    else:
        show(done)
    sys.exit(done.exit_code)
