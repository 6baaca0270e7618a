"""`runnel cancel` and `runnel retry`: stop a run, or submit its request again."""

import sys

import click

from runnel.cli.output import command, open_lake, print_json, print_text, print_to_stderr


@command()
@click.argument("name", metavar="RUN")
@click.option("--wait/--no-wait", default=True, help="Wait until the run has stopped; the default.")
def cancel(name: str, wait: bool, as_json: bool) -> None:
    """Stop a queued or running run; it publishes nothing."""
    from runnel.lake.control import run_queue
    from runnel.project.execution.follow_run import cancel_run as stop

    with open_lake() as project_lake:
        previous = project_lake.store.db.read(lambda connection: run_queue.find(connection, name))
        entry = stop(project_lake, previous.id, wait=wait)
    if as_json:
        print_json({"run": entry.id, "state": entry.state, "commit": entry.commit})
    elif not previous.is_open:
        print_text(f"run {entry.id} had already ended: {entry.state}")
    else:
        messages = {"cancelled": "is cancelled; nothing of it was published", "running": "was asked to stop"}
        print_text(f"run {entry.id} {messages.get(entry.state, f'has {entry.state}: it was too late to stop it')}")


@command()
@click.argument("name", metavar="RUN")
def retry(name: str, as_json: bool) -> None:
    """Repeat a run; tasks that it finished are not computed again."""
    from runnel.cli.flow.run import show_run
    from runnel.cli.run_progress import watch_run
    from runnel.project.execution.dispatch import retry_run as again

    with open_lake() as project_lake, watch_run(quiet=as_json) as watch:
        result = again(project_lake, name, watch, print_to_stderr)
    if as_json:
        print_json(result.json())
    else:
        show_run(result)
    sys.exit(result.exit_code)
