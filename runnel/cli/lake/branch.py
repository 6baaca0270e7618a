"""`runnel branch` and `runnel tag`."""

import click

from runnel.cli.output import command, grid, lake, print_json, when
from runnel.client.json_views.commit import branch_json, tag_json
from runnel.errors import Mistake


@command()
@click.argument("name", required=False)
@click.option("--from", "ref", default="main", metavar="REF", help="Where a new branch starts; main by default.")
@click.option("-d", "--delete", is_flag=True, help="Delete the branch.")
def branch(name: str | None, ref: str, delete: bool, as_json: bool) -> None:
    """List branches; with NAME create one, or delete it with -d."""
    from runnel.lake.history import branches

    with lake() as opened:
        store = opened.store
        if name is None:
            if delete:
                raise Mistake("USAGE", "-d needs the branch's name", fix="runnel branch -d NAME")
            found = store.db.read(branches.branches)
            rows = [[one.name, one.head[:8], when(one.created_at), one.author] for one in found]
            if as_json:
                print_json([branch_json(one) for one in found])
            else:
                click.echo(grid(["branch", "head", "created (UTC)", "author"], rows))
        elif delete:
            branches.delete(store.db, name)
            print_json({"deleted": name}) if as_json else click.echo(f"deleted branch {name}")
        else:
            made = branches.fork(store.db, name, store.commit(ref), store.author)
            if as_json:
                print_json(branch_json(made))
            else:
                click.echo(f"created branch {made.name} at {made.head[:8]}; no data was copied")


@command()
@click.argument("name", required=False)
@click.argument("ref", required=False, default="main")
@click.option("-d", "--delete", is_flag=True, help="Delete the tag.")
@click.option("--force", is_flag=True, help="Move a tag that exists.")
def tag(name: str | None, ref: str, delete: bool, force: bool, as_json: bool) -> None:
    """List tags; with NAME tag REF (main by default), or delete it with -d."""
    from runnel.lake.history import tags

    with lake() as opened:
        store = opened.store
        if name is None:
            found = store.db.read(tags.tags)
            if as_json:
                print_json([tag_json(one) for one in found])
            elif not found:
                click.echo("no tags yet; `runnel tag NAME` makes one")
            else:
                rows = [[one.name, one.commit[:8], when(one.at), one.author] for one in found]
                click.echo(grid(["tag", "commit", "tagged (UTC)", "author"], rows))
        elif delete:
            tags.delete(store, name)
            print_json({"deleted": name}) if as_json else click.echo(f"deleted tag {name}")
        else:
            made = tags.tag(store, name, ref, force=force)
            if as_json:
                print_json(tag_json(made))
            else:
                click.echo(f"tagged {made.commit[:8]} as {made.name}; it is kept as long as the tag")
