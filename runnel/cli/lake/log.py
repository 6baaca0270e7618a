"""`runnel log` and `runnel show`."""

from collections.abc import Mapping
from typing import Any

import click
from sqlalchemy.engine import Connection

from runnel.cli.output import command, count, grid, lake, print_json, when, width
from runnel.client.json_views.commit import commit_json, how_json, whole_json
from runnel.lake.history.commits import Commit, changes_of, history, tables_changed
from runnel.names import TableName


@command()
@click.argument("name", metavar="[TABLE]", required=False)
@click.option("--at", "ref", default="main", metavar="REF", help="Where to start; main by default.")
@click.option("--graph", is_flag=True, help="Draw branches and merges, of all branches.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=None, help="How many commits; all by default.")
def log(name: str | None, ref: str, graph: bool, limit: int | None, as_json: bool) -> None:
    """Show the history, newest first; with TABLE only what changed it."""
    with lake() as opened:
        store = opened.store
        if graph and not as_json:
            from runnel.lake.history.log_graph import graph as drawn

            for line in drawn(store, None if ref == "main" else ref, limit=limit):
                click.echo(str(line)[: width()].rstrip())
            return
        start = store.commit(ref)
        wanted = TableName.parse(name) if name else None
        if wanted is not None:
            store.versions(start, [wanted])
        found = store.db.read(lambda connection: history(connection, start, table=wanted, limit=limit))
        changed = store.db.read(lambda connection: tables_changed(connection, [commit.id for commit in found]))
        details = store.db.read(lambda connection: _details(connection, found, wanted)) if wanted else {}
    if as_json:
        print_json([{**commit_json(c, changed.get(c.id, [])), **how_json(details.get(c.id))} for c in found])
        return
    rows = [[c.id[:8], c.seq, when(c.at), c.author, _told(c, details.get(c.id, {}))] for c in found]
    click.echo(grid(["commit", "seq", "at (UTC)", "author", "how" if wanted else "message"], rows, right=[1]))


@command()
@click.argument("ref", metavar="COMMIT")
def show(ref: str, as_json: bool) -> None:
    """Show one commit: who, when, and what it did to which tables."""
    with lake() as opened:
        store = opened.store
        commit = store.commit(ref)
        changes = store.db.read(lambda connection: changes_of(connection, commit.id))
    if as_json:
        print_json(whole_json(commit, changes))
        return
    lines = [
        f"commit  {commit.id}",
        f"seq     {commit.seq}",
        f"branch  {commit.branch}",
        f"parent  {commit.parent or '-'}",
    ]
    if commit.merged:
        lines.append(f"merged  {commit.merged}")
    lines += [
        f"author  {commit.author}",
        f"at      {when(commit.at)} UTC",
        f"kind    {commit.kind}",
        "",
        f"  {commit.message}",
        "",
    ]
    click.echo("\n".join(lines))
    words = {(True, False): "created", (False, True): "dropped", (False, False): "changed"}
    rows = [[str(change.table), words[change.before is None, change.after is None]] for change in changes]
    click.echo(grid(["table", "change"], rows) if rows else count(0, "table") + " changed")


def _details(connection: Connection, commits: list[Commit], table: TableName) -> dict[str, Mapping[str, Any]]:
    """Return what commits recorded about how they made a table."""
    changes = ((one.id, change) for one in commits for change in changes_of(connection, one.id, table))
    return {commit: change.detail for commit, change in changes}


def _told(commit: Commit, detail: Mapping[str, Any]) -> str:
    """Return what a commit did: for a table that a task made, how it was made."""
    text = commit.message
    if "action" in detail and "key" in detail:
        text = f"{detail['action']}: {detail['reason']}"
        text = text if detail.get("run") == commit.run else f"reuse: run {detail['run']} made it; {text}"
    return text + (" (expired)" if commit.expired_at else "")
