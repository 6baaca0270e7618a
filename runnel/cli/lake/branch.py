"""`runnel branch` and `runnel tag`."""

import click

from runnel.cli.output import command, format_table, format_time, open_lake, print_json, print_text
from runnel.client.json_views.commit import branch_json, tag_json
from runnel.errors import Mistake


@command()
@click.argument("name", required=False)
@click.option(
    "--from",
    "--at",
    "ref",
    default="main",
    metavar="REF",
    help="Branch, tag, commit or main@TIME where a new branch starts; main by default.",
)
@click.option("-d", "--delete", is_flag=True, help="Delete the branch.")
def branch(name: str | None, ref: str, delete: bool, as_json: bool) -> None:
    """List branches; with NAME create one, or delete it with -d."""
    from runnel.lake.history import branches

    with open_lake() as project_lake:
        store = project_lake.store
        if name is None:
            if delete:
                raise Mistake("USAGE", "-d needs the branch's name", fix="runnel branch -d NAME")
            entries = store.db.read(branches.list_branches)
            rows = [[entry.name, entry.head[:8], format_time(entry.created_at), entry.author] for entry in entries]
            if as_json:
                print_json([branch_json(entry) for entry in entries])
            else:
                print_text(format_table(["branch", "head", "created (UTC)", "author"], rows))
        elif delete:
            branches.delete_branch(store.db, name)
            print_json({"deleted": name}) if as_json else print_text(f"deleted branch {name}")
        else:
            created = branches.fork_branch(store.db, name, store.commit(ref), store.author)
            if as_json:
                print_json(branch_json(created))
            else:
                print_text(f"created branch {created.name} at {created.head[:8]}; no data was copied")


@command()
@click.argument("name", required=False)
@click.argument("ref", required=False, default="main")
@click.option("-d", "--delete", is_flag=True, help="Delete the tag.")
@click.option("--force", is_flag=True, help="Move an existing tag.")
def tag(name: str | None, ref: str, delete: bool, force: bool, as_json: bool) -> None:
    """List tags; with NAME tag REF (main by default), or delete it with -d."""
    from runnel.lake.history import tags

    with open_lake() as project_lake:
        store = project_lake.store
        if name is None:
            entries = store.db.read(tags.list_tags)
            if as_json:
                print_json([tag_json(entry) for entry in entries])
            elif not entries:
                print_text("no tags yet; `runnel tag NAME` creates one")
            else:
                rows = [[entry.name, entry.commit[:8], format_time(entry.at), entry.author] for entry in entries]
                print_text(format_table(["tag", "commit", "tagged (UTC)", "author"], rows))
        elif delete:
            tags.delete_tag(store, name)
            print_json({"deleted": name}) if as_json else print_text(f"deleted tag {name}")
        else:
            created = tags.create_tag(store, name, ref, force=force)
            if as_json:
                print_json(tag_json(created))
            else:
                print_text(
                    f"tagged {created.commit[:8]} as {created.name}; the commit is kept as long as the tag exists"
                )
