"""`runnel merge` and `runnel revert`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.flow.sinks import hand_on
from runnel.cli.output import command, grid, lake, print_json
from runnel.client.json_views.diff import steps_json

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.history.commits import Commit
    from runnel.lake.merge.merge import Merged
    from runnel.lake.merge.merge_plan import Decision


@command()
@click.argument("branch")
@click.option("--into", default="main", metavar="B", help="The branch to merge into; main by default.")
@click.option("--run", "computes", is_flag=True, help="Compute what tasks must make anew, into the same commit.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done to which table.")
@click.option("-m", "--message", default=None, help="What the commit says.")
def merge(branch: str, into: str, computes: bool, dry_run: bool, message: str | None, as_json: bool) -> None:
    """Merge a branch: tables that only it changed are taken as they are, others are replayed or reported."""
    from runnel.lake.merge.merge_plan import plan_merge

    with lake() as opened:
        if dry_run:
            plan, commit = plan_merge(opened.store, branch, into), None
        else:
            done = _merge(opened, branch, into, message, computes=computes, quiet=as_json)
            plan, commit = done.plan, done.commit
        steps = [step for step in plan.steps if step.action != "same"]
        if not as_json:
            _show(steps, commit, branch, into, dry_run=dry_run)
        sent = hand_on(opened, into, quiet=as_json) if commit is not None else ()
    if as_json:
        told = {"branch": branch, "into": into, "commit": commit.id if commit else None, "steps": steps_json(steps)}
        print_json({**told, "sinks": [one.json() for one in sent]})
    if commit is None:
        _exit_on(steps)


@command()
@click.argument("commit")
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
@click.option("-m", "--message", default=None, help="What the new commit says.")
def revert(commit: str, branch: str, message: str | None, as_json: bool) -> None:
    """Undo a commit with a new one; history stays."""
    from runnel.lake.merge.revert import revert as undo

    with lake() as opened:
        undone = opened.store.commit(commit)
        done = undo(opened.store, undone.id, branch, message)
        if not as_json:
            click.echo(f"reverted {undone.id[:8]} ({undone.message}) on {branch}, commit {done.id[:8]}")
        sent = hand_on(opened, branch, quiet=as_json)
    if as_json:
        told = {"reverted": undone.id, "branch": branch, "commit": done.id}
        print_json({**told, "sinks": [one.json() for one in sent]})


def _merge(opened: "Lake", branch: str, into: str, message: str | None, *, computes: bool, quiet: bool) -> "Merged":
    if not computes:
        from runnel.lake.merge.merge import merge as merge_branch

        return merge_branch(opened.store, branch, into, message)
    from runnel.cli.run_progress import watching
    from runnel.project.execution.merge_and_run import merge_and_run

    with watching(quiet=quiet) as watch:
        return merge_and_run(opened, branch, into, message=message, watch=watch)


def _show(steps: "list[Decision]", commit: "Commit | None", branch: str, into: str, *, dry_run: bool) -> None:
    if steps:
        click.echo(grid(["table", "action", "why"], [[step.table, step.action, step.reason] for step in steps]))
    if commit is not None:
        click.echo(f"merged {branch} into {into}, commit {commit.id[:8]}")
    elif not dry_run or not steps:
        click.echo(f"nothing to merge: {into} has all of {branch}")


def _exit_on(steps: "list[Decision]") -> None:
    """End with 1 where a dry run found what a merge would fail with."""
    if any(step.action in ("conflict", "compute") for step in steps):
        sys.exit(1)
