"""`runnel plan` and `runnel run`."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from runnel.cli.output import command, count, grid, lake, print_json, say

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.project.planning.run_request import Wish
    from runnel.run.results.run_result import Done, Ran, Watch

F = TypeVar("F", bound=Callable[..., None])


def _choosing(function: F) -> F:
    """Add the options that say what to plan or run."""
    options = (
        click.option("-s", "--select", multiple=True, metavar="SEL", help="Which tables: dws.*, +x, x+, tag:daily."),
        click.option("--exclude", multiple=True, metavar="SEL", help="Which tables not."),
        click.option("--branch", default="main", metavar="B", help="Which branch; main by default."),
        click.option("--full-refresh", is_flag=True, help="Compute tasks in full; sources are not read again."),
        click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="Set a parameter of tasks."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command()
@_choosing
@click.option("--all", "all_steps", is_flag=True, help="Show skipped tables one by one, too.")
def plan(
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    branch: str,
    full_refresh: bool,
    values: tuple[str, ...],
    all_steps: bool,
    as_json: bool,
) -> None:
    """Show what would be computed and why; nothing is changed."""
    from runnel.project.planning.plan_project import plan_project

    with lake(overrides=values) as opened:
        found = plan_project(opened, _wish(select, exclude, branch, full_refresh)).plan
    if as_json:
        print_json(found.json())
        return
    from runnel.plan.plan_text import plan_text

    click.echo(plan_text(found, all_steps=all_steps), nl=False)


@command()
@_choosing
@click.option("-m", "--message", default=None, help="What the commit says.")
@click.option("--verify", is_flag=True, help="Compare every table with a full computation before publishing.")
@click.option("--local", is_flag=True, help="Compute in this process, also when a service runs.")
def run(
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    branch: str,
    full_refresh: bool,
    values: tuple[str, ...],
    message: str | None,
    verify: bool,
    local: bool,
    as_json: bool,
) -> None:
    """Plan, compute, check and publish: all of it as one commit, or nothing."""
    from runnel.cli.run_progress import watching

    with lake(overrides=values) as opened, watching(quiet=as_json) as watch:
        wish = _wish(select, exclude, branch, full_refresh, verify)
        done = _run(opened, wish, message, values, watch, local)
    if as_json:
        print_json(done.json())
    else:
        show(done)
        _show_verified(done, verify)
        _show_sinks(done)
    sys.exit(done.exit_code)


def _run(
    opened: "Lake", wish: "Wish", message: str | None, values: tuple[str, ...], watch: "Watch | None", local: bool
) -> "Ran":
    """Let a worker compute that is there, warm; else compute here."""
    from runnel.cli.output import chosen

    overrides = (*chosen().get("overrides", ()), *values)
    ran = None if local else _served(opened, wish, message, overrides, watch)
    if ran is not None:
        return ran
    from runnel.project.execution.run_project import run_project

    return run_project(opened, wish, message=message, watch=watch)


def _served(
    opened: "Lake", wish: "Wish", message: str | None, overrides: tuple[str, ...], watch: "Watch | None"
) -> "Ran | None":
    """Return what became of a wish that a worker took, or None where there is none; what is light is asked first."""
    from runnel.service import instance_file

    handed = None
    if instance_file.found(opened.settings.home) is not None:
        from runnel.service.local_handover import hand_over

        handed = hand_over(opened.settings, wish, message, overrides)
    if handed is not None and (ran := handed.follow(watch, say)) is not None:
        return ran
    from runnel.lake.sqlite_fast_path import may_have_workers

    if handed is None and not may_have_workers(opened.settings.catalog):
        return None
    from runnel.project.execution.follow_run import follow, is_served, submit
    from runnel.project.planning.run_request_json import Asked

    if handed is not None:  # its service has gone since
        return follow(opened, handed.run, watch, say, seen=handed.seen)
    if is_served(opened):
        return follow(opened, submit(opened, Asked(wish, message, overrides)), watch, say)
    return None


def show(done: "Ran") -> None:
    """Print what became of a run."""
    from runnel.run.results.run_result import KEPT_GOING

    did = [step for step in done.steps if step.state != "skipped"]
    if did:
        rows = [[step.table, step.action, _rows(step), f"{step.seconds:.1f} s", _outcome(step)] for step in did]
        click.echo(grid(["table", "action", "rows", "time", ""], rows, right=[2, 3]))
    skipped = len(done.steps) - len(did)
    tail = f", {skipped} skipped" if skipped and did else ""
    for step in done.steps:
        for warning in step.warnings:
            say(f"warning: {step.table}: {warning}")
    for error in done.errors:
        say(f"\n{error}")
    if done.state == "succeeded" and done.commit:
        click.echo(f"published commit {done.commit[:8]} on {done.branch} in {done.seconds:.1f} s{tail}")
    elif done.state == "nothing":
        what = "nothing changed: the results are the same, no commit" if did else f"nothing to do: {skipped} skipped"
        click.echo(what)
        for step in done.steps:
            if step.reason == KEPT_GOING:
                click.echo(f"{step.table}: {KEPT_GOING}; `runnel status` says how it is")
    elif done.state == "cancelled":
        say("CANCELLED: nothing was published; what was finished is known when you run it again")
    else:
        say(f"\nnothing was published; what was finished is kept: correct it and run again\nlog: {done.log}")


def _rows(step: "Done") -> str:
    return "" if step.rows is None else count(step.rows)


def _outcome(step: "Done") -> str:
    if step.state != "succeeded":
        return step.state
    return f"{count(step.set_aside, 'row')} set aside" if step.set_aside else ""


def _show_verified(done: "Ran", asked: bool) -> None:
    """Print how many tables were compared, where all of them are equal."""
    if not asked or done.state not in ("succeeded", "nothing"):
        return
    number = sum(step.verified is True for step in done.steps)
    whole = sum(step.action == "full" for step in done.steps)
    told = [f"{count(number, 'table')} {'equals' if number == 1 else 'equal'} a full computation"] if number else []
    told += [f"{whole:,} {'was' if whole == 1 else 'were'} computed in full"] if whole else []
    click.echo(f"verified: {', '.join(told) or 'there was no table to compare'}")


def _show_sinks(done: "Ran") -> None:
    if done.sinks:
        from runnel.cli.flow import sinks

        sinks.show(done.sinks)


def _wish(
    select: tuple[str, ...], exclude: tuple[str, ...], branch: str, full_refresh: bool, verify: bool = False
) -> "Wish":
    from runnel.project.planning.run_request import Wish

    return Wish(select, exclude, branch, full_refresh, verify)
