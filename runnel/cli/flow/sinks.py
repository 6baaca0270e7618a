"""`runnel sinks`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.output import (
    command,
    format_count,
    format_table,
    format_time,
    open_lake,
    print_json,
    print_text,
    print_to_stderr,
)
from runnel.errors import Mistake, RunnelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.client.lake import Lake
    from runnel.project.execution.deliver_sinks import SinkState
    from runnel.run.results.delivery_result import DeliveryResult


@command()
@click.argument("action", required=False, type=click.Choice(["deliver", "reset"]), metavar="[deliver|reset]")
@click.argument("name", required=False, metavar="[NAME]")
def sinks(action: str | None, name: str | None, as_json: bool) -> None:
    """List sinks and their progress; `deliver` delivers what they lack, `reset` starts them again from the beginning.

    NAME is a sink, or a table that has one sink.
    """
    with open_lake() as project_lake:
        if action == "deliver":
            _deliver_to_sinks(project_lake, name, as_json)
        elif action == "reset":
            _reset_sink(project_lake, name, as_json)
        else:
            _list_sinks(project_lake, as_json)


def _list_sinks(project_lake: "Lake", as_json: bool) -> None:
    sink_list = project_lake.sinks()
    if as_json:
        print_json([sink_state.json() for sink_state in sink_list])
        return
    if not sink_list:
        print_text('no sinks; rn.sink("dws.seller_day", rn.jdbc(...)) declares one')
        return
    rows = [
        [
            sink_state.sink,
            sink_state.branch,
            _describe_state(sink_state),
            (sink_state.commit or "")[:8],
            _format_rows(sink_state),
            _format_delivered_at(sink_state),
        ]
        for sink_state in sink_list
    ]
    print_text(format_table(["sink", "branch", "state", "commit", "rows", "delivered (UTC)"], rows, right_aligned=[4]))
    for sink_state in sink_list:
        if sink_state.problem:
            print_to_stderr(f"\n{sink_state.sink}: {sink_state.problem}")


def _deliver_to_sinks(project_lake: "Lake", name: str | None, as_json: bool) -> None:
    from runnel.cli.run_progress import watch_run
    from runnel.project.execution.deliver_sinks import deliver_now

    with watch_run(quiet=as_json) as watch:
        deliveries = deliver_now(project_lake, name, watch)
    if as_json:
        print_json([delivery.json() for delivery in deliveries])
    else:
        if not deliveries:
            print_text("every sink is up to date")
        show_deliveries(deliveries)
        for delivery in deliveries:
            if delivery.error is not None:
                print_to_stderr(f"\n{delivery.error}")
    sys.exit(1 if any(delivery.state == "failed" for delivery in deliveries) else 0)


def _reset_sink(project_lake: "Lake", name: str | None, as_json: bool) -> None:
    if name is None:
        raise Mistake(
            "SINK_UNNAMED",
            "which sink should be reset?",
            fix="write `runnel sinks reset NAME`; `runnel sinks` lists the names",
        )
    sink = project_lake.reset_sink(name)
    if as_json:
        print_json({"sink": sink, "state": "reset"})
    else:
        print_text(
            f"{sink} starts again from the beginning: the next run, or `runnel sinks deliver`, delivers all rows again"
        )


def deliver_after_command(project_lake: "Lake", branch: str, *, quiet: bool) -> "tuple[DeliveryResult, ...]":
    """Deliver what the command just committed, and print the result; a failure here does not fail the command."""
    from runnel.cli.run_progress import watch_run
    from runnel.project.execution.deliver_sinks import deliver_after_commit

    try:
        with watch_run(quiet=quiet) as watch:
            deliveries = deliver_after_commit(project_lake, branch, watch)
    except Exception as error:
        what = error.what if isinstance(error, RunnelError) else f"{type(error).__name__}: {error}"
        print_to_stderr(f"warning: nothing was delivered to sinks; the next run tries again: {what}")
        return ()
    if not quiet:
        show_deliveries(deliveries)
    return deliveries


def show_deliveries(deliveries: "Sequence[DeliveryResult]") -> None:
    """Print a line for each sink that received rows, and a warning for each that failed."""
    for delivery in deliveries:
        if delivery.commits:
            commits = f" of {format_count(delivery.commits, 'commit')}" if delivery.commits > 1 else ""
            print_text(
                f"delivered {format_count(delivery.rows, 'row')}{commits} "
                f"to {delivery.sink} in {delivery.seconds:.1f} s"
            )
        if delivery.place is not None:
            print_to_stderr(f"note: {delivery.sink} was written {delivery.place.describe()}")
        if delivery.warning:
            print_to_stderr(f"warning: {delivery.sink}: {delivery.warning}")
        if delivery.state == "failed" and delivery.error is not None:
            print_to_stderr(f"warning: {delivery.sink} failed; the next run tries again: {delivery.error.what}")
        if delivery.state == "held":
            print_to_stderr(f"{delivery.sink}: another process is delivering to it")


def _describe_state(sink_state: "SinkState") -> str:
    if sink_state.problem:
        return (
            f"failing since {format_time(sink_state.failing_since or '')}, "
            f"{format_count(sink_state.behind, 'commit')} behind"
        )
    return f"{format_count(sink_state.behind, 'commit')} behind" if sink_state.behind else "up to date"


def _format_rows(sink_state: "SinkState") -> str:
    return "" if sink_state.rows is None else format_count(sink_state.rows)


def _format_delivered_at(sink_state: "SinkState") -> str:
    return format_time(sink_state.at) if sink_state.at and sink_state.commit else ""
