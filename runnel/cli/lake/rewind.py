"""`runnel rewind`."""

import click

from runnel.cli.output import command, open_lake, print_json, print_text
from runnel.errors import plural


@command()
@click.argument("source")
@click.option("--to", required=True, metavar="REF", help="The commit, tag or time to go back to.")
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option("--dry-run", is_flag=True, help="Only show what would be read again.")
def rewind(source: str, to: str, branch: str, dry_run: bool, as_json: bool) -> None:
    """Set a source's table and position back to REF; the next run reads again what arrived since."""
    from runnel.client.json_views.repair import rewind_to_json

    with open_lake() as project_lake:
        result = project_lake.rewind(source, to=to, branch=branch, dry_run=dry_run)
    if as_json:
        print_json(rewind_to_json(source, result))
        return
    reread_text = plural(result.files, "file") if not result.has_state else "what arrived since"
    state_text = "is empty" if result.drops else f"is as it was at {result.to.id[:8]}"
    if result.commit is None:
        print_text(f"would rewind {source} to {result.to.id[:8]}; the next run would read {reread_text} again")
    else:
        print_text(f"{source} {state_text}, commit {result.commit.id[:8]}; the next run reads {reread_text} again")
