"""`runnel log` and `runnel show`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from sqlalchemy.engine import Connection

from runnel.cli.output import (
    command,
    format_count,
    format_size,
    format_table,
    format_time,
    open_lake,
    print_json,
    print_text,
    terminal_width,
)
from runnel.client.json_views.commit import commit_detail_json, commit_json, task_result_json
from runnel.lake.history.commits import Commit, read_changed_tables, read_changes, read_history
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.provenance.commit_files import CommitFile

_MAX_FILES = 20


@command()
@click.argument("name", metavar="[TABLE]", required=False)
@click.option(
    "--at",
    "ref",
    default="main",
    metavar="REF",
    help="Branch, tag, commit or main@TIME to start from; main by default.",
)
@click.option("--graph", is_flag=True, help="Draw the graph of all branches and merges.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=None, help="Maximum number of commits; all by default."
)
def log(name: str | None, ref: str, graph: bool, limit: int | None, as_json: bool) -> None:
    """Show the history, newest first; with TABLE only what changed it."""
    with open_lake() as project_lake:
        store = project_lake.store
        if graph and not as_json:
            from runnel.lake.history.log_graph import draw_graph as drawn

            for line in drawn(store, None if ref == "main" else ref, limit=limit):
                print_text(str(line)[: terminal_width()].rstrip())
            return
        start = store.commit(ref)
        table = TableName.parse(name) if name else None
        if table is not None:
            store.versions(start, [table])
        commits = store.db.read(lambda connection: read_history(connection, start, table=table, limit=limit))
        changed_tables = store.db.read(
            lambda connection: read_changed_tables(connection, [commit.id for commit in commits])
        )
        details = store.db.read(lambda connection: _read_details(connection, commits, table)) if table else {}
    if as_json:
        print_json(
            [{**commit_json(c, changed_tables.get(c.id, [])), **task_result_json(details.get(c.id))} for c in commits]
        )
        return
    rows = [[c.id[:8], c.seq, format_time(c.at), c.author, _describe_commit(c, details.get(c.id, {}))] for c in commits]
    print_text(
        format_table(["commit", "seq", "at (UTC)", "author", "how" if table else "message"], rows, right_aligned=[1])
    )


@command()
@click.argument("ref", metavar="COMMIT")
def show(ref: str, as_json: bool) -> None:
    """Show one commit: who, when, and what it did to which tables."""
    with open_lake() as project_lake:
        store = project_lake.store
        commit = store.commit(ref)
        changes = store.db.read(lambda connection: read_changes(connection, commit.id))
        commit_files = project_lake.files_of(commit.id)
    if as_json:
        print_json(commit_detail_json(commit, changes) | {"files": [file.json() for file in commit_files]})
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
        f"at      {format_time(commit.at)} UTC",
        f"kind    {commit.kind}",
        "",
        f"  {commit.message}",
        "",
    ]
    print_text("\n".join(lines))
    words = {(True, False): "created", (False, True): "dropped", (False, False): "changed"}
    rows = [[str(change.table), words[change.before is None, change.after is None]] for change in changes]
    print_text(format_table(["table", "change"], rows) if rows else format_count(0, "table") + " changed")
    if commit_files:
        print_text("\n" + _format_files(commit_files))


def _format_files(commit_files: "list[CommitFile]") -> str:
    rows = [
        [
            file.table,
            file.file,
            file.change,
            "" if file.size is None else format_size(file.size),
            "" if file.rows is None else format_count(file.rows),
        ]
        for file in commit_files[:_MAX_FILES]
    ]
    text = format_table(["table", "file", "", "size", "rows"], rows, right_aligned=[3, 4])
    more = len(commit_files) - len(rows)
    return text + (f"\nand {format_count(more, 'more file')}; --json has all" if more else "")


def _read_details(connection: Connection, commits: list[Commit], table: TableName) -> dict[str, Mapping[str, Any]]:
    """Return what each commit recorded about how the table was computed."""
    changes = ((entry.id, change) for entry in commits for change in read_changes(connection, entry.id, table))
    return {commit: change.detail for commit, change in changes}


def _describe_commit(commit: Commit, detail: Mapping[str, Any]) -> str:
    """Return a commit's message; for a table of a task, how the commit computed it."""
    text = commit.message
    if "action" in detail and "key" in detail:
        text = f"{detail['action']}: {detail['reason']}"
        text = text if detail.get("run") == commit.run else f"reuse: run {detail['run']} made it; {text}"
    return text + (" (expired)" if commit.expired_at else "")
