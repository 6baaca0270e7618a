"""`runnel replay`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, count, grid, lake, print_json, say

if TYPE_CHECKING:
    from runnel.project.execution.replay import Replay
    from runnel.run.verify.replay import Replayed


@command()
@click.argument("ref", metavar="COMMIT")
def replay(ref: str, as_json: bool) -> None:
    """Run that commit's code on that commit's inputs, and compare with what it published."""
    from runnel.project.execution.replay import replay_commit

    with lake() as opened:
        done = replay_commit(opened, ref, None if as_json else say)
    if as_json:
        print_json(done.json())
    else:
        _show(done)
    sys.exit(0 if done.is_same else 1)


def _show(done: "Replay") -> None:
    if not done.tables:
        click.echo(f"there is nothing to replay: no task computed anything for commit {done.commit.id[:8]}")
        return
    rows = [[one.table, one.action, one.state, _rows(one), f"{one.seconds:.1f} s"] for one in done.tables]
    click.echo(grid(["table", "was", "replay", "rows", "time"], rows, right=[3, 4]))
    for one in done.tables:
        if one.state != "same":
            _show_table(one)
    if not done.is_same:
        for note in done.notes:
            say(f"note: {note}")
    same = sum(one.state == "same" for one in done.tables)
    click.echo(f"\n{same} of {count(len(done.tables), 'table')} as commit {done.commit.id[:8]} published them")


def _rows(one: "Replayed") -> str:
    if one.again is None or one.again == one.rows:
        return count(one.rows) if one.rows is not None else ""
    return f"{count(one.rows)} -> {count(one.again)}"


def _show_table(one: "Replayed") -> None:
    if one.error is not None:
        say(f"\n{one.error}")
    if one.found is not None:
        click.echo(f"\n{one.table}")
        for line in one.found.lines("what was published", "the replay"):
            click.echo(f"  {line}")
    for note in one.notes:
        click.echo(f"  {note}")
