"""`runnel plan` and `runnel run`."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from runnel.cli.output import command, format_count, format_table, open_lake, print_json, print_text, print_to_stderr

if TYPE_CHECKING:
    from runnel.run.results.run_result import RunResult, StepResult

F = TypeVar("F", bound=Callable[..., None])


def _add_selection_options(function: F) -> F:
    """Add the options that say what to plan or run."""
    options = (
        click.option(
            "-s",
            "--select",
            multiple=True,
            metavar="SEL",
            help="Only these tables, such as dws.*, +x, x+ or tag:daily.",
        ),
        click.option("--exclude", multiple=True, metavar="SEL", help="Leave these tables out."),
        click.option("--branch", default="main", metavar="B", help="Branch; main by default."),
        click.option("--full-refresh", is_flag=True, help="Compute tasks in full; sources are not read again."),
        click.option(
            "--set", "values", multiple=True, metavar="NAME=VALUE", help="Value of a keyword parameter of tasks."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command()
@_add_selection_options
@click.option("--all", "all_steps", is_flag=True, help="Also list skipped tables.")
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
    from runnel.model.run_request import RunRequest
    from runnel.project.planning.plan_project import plan_project

    with open_lake(overrides=values) as project_lake:
        flow_plan = plan_project(project_lake, RunRequest(select, exclude, branch, full_refresh)).plan
    if as_json:
        print_json(flow_plan.json())
        return
    from runnel.plan.plan_text import format_plan

    print_text(format_plan(flow_plan, all_steps=all_steps), nl=False)


@command()
@_add_selection_options
@click.option("-m", "--message", default=None, help="Message of the commit.")
@click.option("--verify", is_flag=True, help="Compare every table with a full computation before publishing.")
@click.option("--local", is_flag=True, help="Compute in this process, even if a service is running.")
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
    from runnel.cli.output import read_global_options
    from runnel.cli.run_progress import watch_run
    from runnel.model.run_request import RunRequest
    from runnel.project.execution.dispatch import dispatch_run

    with open_lake(overrides=values) as project_lake, watch_run(quiet=as_json) as watch:
        overrides = (*read_global_options().get("overrides", ()), *values)
        request = RunRequest(select, exclude, branch, full_refresh, verify=verify, message=message, overrides=overrides)
        result = dispatch_run(project_lake, request, watch, print_to_stderr, local=local)
    if as_json:
        print_json(result.json())
    else:
        show_run(result)
        _show_verification(result, verify)
        _show_sinks(result)
    sys.exit(result.exit_code)


def show_run(result: "RunResult") -> None:
    """Print the result of a run."""
    from runnel.plan.reasons import ROWS_STAY
    from runnel.run.results.run_result import RUN_BY_SERVICE

    executed_steps = [step for step in result.steps if step.state != "skipped"]
    if executed_steps:
        rows = [
            [step.table, step.action, _format_rows(step), f"{step.seconds:.1f} s", _describe_outcome(step)]
            for step in executed_steps
        ]
        print_text(format_table(["table", "action", "rows", "time", ""], rows, right_aligned=[2, 3]))
    skipped = len(result.steps) - len(executed_steps)
    skipped_text = f", {skipped} skipped" if skipped and executed_steps else ""
    for step in result.steps:
        if step.place is not None:
            print_to_stderr(f"note: {step.table} was read {step.place.describe()}")
        for warning in step.warnings:
            print_to_stderr(f"warning: {step.table}: {warning}")
        if step.reason.endswith(ROWS_STAY):
            print_to_stderr(f"note: {step.table}: {step.reason}")
    for error in result.errors:
        print_to_stderr(f"\n{error}")
    if result.state == "succeeded" and result.commit:
        print_text(f"published commit {result.commit[:8]} on {result.branch} in {result.seconds:.1f} s{skipped_text}")
    elif result.state == "nothing":
        what = (
            "nothing changed: the results are the same, no commit"
            if executed_steps
            else f"nothing to do: {skipped} skipped"
        )
        print_text(what)
        for step in result.steps:
            if step.reason == RUN_BY_SERVICE:
                print_text(f"{step.table}: {RUN_BY_SERVICE}; `runnel status` shows its state")
    elif result.state == "cancelled":
        print_to_stderr("CANCELLED: nothing was published; if you run it again, finished tasks are not computed again")
    else:
        print_to_stderr(
            "\nnothing was published; correct the error and run again: finished tasks are not computed again, "
            "sources are read again\n"
            f"log: {result.log}"
        )


def _format_rows(step: "StepResult") -> str:
    return "" if step.rows is None else format_count(step.rows)


def _describe_outcome(step: "StepResult") -> str:
    if step.state != "succeeded":
        return step.state
    return f"{format_count(step.set_aside, 'row')} set aside" if step.set_aside else ""


def _show_verification(result: "RunResult", requested: bool) -> None:
    """Print how many tables `--verify` compared, if all of them are equal."""
    if not requested or result.state not in ("succeeded", "nothing"):
        return
    equal_count = sum(step.verified is True for step in result.steps)
    full_count = sum(step.action == "full" for step in result.steps)
    phrases = (
        [f"{format_count(equal_count, 'table')} {'equals' if equal_count == 1 else 'equal'} a full computation"]
        if equal_count
        else []
    )
    phrases += [f"{full_count:,} {'was' if full_count == 1 else 'were'} computed in full"] if full_count else []
    print_text(f"verified: {', '.join(phrases) or 'there was no table to compare'}")


def _show_sinks(result: "RunResult") -> None:
    if result.sinks:
        from runnel.cli.flow import sinks

        sinks.show_deliveries(result.sinks)
