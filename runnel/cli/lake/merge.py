"""`runnel merge` and `runnel revert`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.flow.sinks import deliver_after_command
from runnel.cli.output import command, format_table, open_lake, print_json, print_text
from runnel.client.json_views.diff import steps_json

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.history.commits import Commit
    from runnel.lake.merge.merge import MergeResult
    from runnel.lake.merge.merge_plan import MergeDecision


@command()
@click.argument("branch")
@click.option("--into", default="main", metavar="B", help="The branch to merge into; main by default.")
@click.option(
    "--run", "computes", is_flag=True, help="Compute the tables that tasks must compute again, in the same commit."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done to which table.")
@click.option("-m", "--message", default=None, help="Message of the commit.")
def merge(branch: str, into: str, computes: bool, dry_run: bool, message: str | None, as_json: bool) -> None:
    """Merge a branch. Tables that only the branch changed are taken as they are; others are merged or reported."""
    from runnel.lake.merge.merge_plan import plan_merge

    with open_lake() as project_lake:
        if dry_run:
            plan, commit = plan_merge(project_lake.store, branch, into), None
        else:
            result = _merge_branch(project_lake, branch, into, message, computes=computes, quiet=as_json)
            plan, commit = result.plan, result.commit
        steps = [step for step in plan.steps if step.action != "same"]
        if not as_json:
            _show_steps(steps, commit, branch, into, dry_run=dry_run)
        deliveries = deliver_after_command(project_lake, into, quiet=as_json) if commit is not None else ()
    if as_json:
        summary = {"branch": branch, "into": into, "commit": commit.id if commit else None, "steps": steps_json(steps)}
        print_json({**summary, "sinks": [delivery.json() for delivery in deliveries]})
    if commit is None:
        _exit_on_conflict(steps)


@command()
@click.argument("commit")
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option("-m", "--message", default=None, help="Message of the new commit.")
def revert(commit: str, branch: str, message: str | None, as_json: bool) -> None:
    """Undo a commit with a new one; history stays."""
    from runnel.lake.merge.revert import revert_commit

    with open_lake() as project_lake:
        reverted_commit = project_lake.store.commit(commit)
        new_commit = revert_commit(project_lake.store, reverted_commit.id, branch, message)
        if not as_json:
            print_text(
                f"reverted {reverted_commit.id[:8]} ({reverted_commit.message}) on {branch}, commit {new_commit.id[:8]}"
            )
        deliveries = deliver_after_command(project_lake, branch, quiet=as_json)
    if as_json:
        summary = {"reverted": reverted_commit.id, "branch": branch, "commit": new_commit.id}
        print_json({**summary, "sinks": [delivery.json() for delivery in deliveries]})


def _merge_branch(
    project_lake: "Lake", branch: str, into: str, message: str | None, *, computes: bool, quiet: bool
) -> "MergeResult":
    if not computes:
        from runnel.lake.merge.merge import merge_branch

        return merge_branch(project_lake.store, branch, into, message)
    from runnel.cli.run_progress import watch_run
    from runnel.project.execution.merge_and_run import merge_and_run

    with watch_run(quiet=quiet) as watch:
        return merge_and_run(project_lake, branch, into, message=message, watch=watch)


def _show_steps(
    steps: "list[MergeDecision]", commit: "Commit | None", branch: str, into: str, *, dry_run: bool
) -> None:
    if steps:
        print_text(format_table(["table", "action", "why"], [[step.table, step.action, step.reason] for step in steps]))
    if commit is not None:
        print_text(f"merged {branch} into {into}, commit {commit.id[:8]}")
    elif not dry_run or not steps:
        print_text(f"nothing to merge: {into} has all commits of {branch}")


def _exit_on_conflict(steps: "list[MergeDecision]") -> None:
    """Exit with 1 if a dry run found a conflict, or tables that must be computed."""
    if any(step.action in ("conflict", "compute") for step in steps):
        sys.exit(1)
