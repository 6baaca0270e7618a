"""`runnel rewind`."""

import click

from runnel.cli.output import command, lake, print_json


@command()
@click.argument("source")
@click.option("--to", required=True, metavar="REF", help="The commit, tag or time to go back to.")
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
@click.option("--dry-run", is_flag=True, help="Only say what would be read again.")
def rewind(source: str, to: str, branch: str, dry_run: bool, as_json: bool) -> None:
    """Take a source's table and position back to REF: the next run reads again what came since."""
    from runnel.project.execution.rewind import rewind as go_back

    with lake() as opened:
        done = go_back(opened, source, to, branch, dry=dry_run)
    if as_json:
        commit = done.commit.id if done.commit else None
        print_json({"source": source, "to": done.to.id, "commit": commit, "files": done.files, "state": done.has_state})
        return
    again = f"{done.files:,} file{'' if done.files == 1 else 's'}" if not done.has_state else "what came since"
    where = "is empty" if done.drops else f"is as it was at {done.to.id[:8]}"
    if done.commit is None:
        click.echo(f"would rewind {source} to {done.to.id[:8]}; the next run would read {again} again")
    else:
        click.echo(f"{source} {where}, commit {done.commit.id[:8]}; the next run reads {again} again")
