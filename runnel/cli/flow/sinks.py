"""`runnel sinks`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, count, grid, lake, print_json, say, when
from runnel.errors import Mistake, RunnelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.client.lake import Lake
    from runnel.project.execution.deliver_sinks import SinkState
    from runnel.run.results.delivery_result import Sent


@command()
@click.argument("action", required=False, type=click.Choice(["deliver", "reset"]), metavar="[deliver|reset]")
@click.argument("name", required=False, metavar="[NAME]")
def sinks(action: str | None, name: str | None, as_json: bool) -> None:
    """List sinks and how far they have come; `deliver` delivers what they lack, `reset` all again.

    NAME is a sink, or a table that has one sink.
    """
    with lake() as opened:
        if action == "deliver":
            _deliver(opened, name, as_json)
        elif action == "reset":
            _reset(opened, name, as_json)
        else:
            _list(opened, as_json)


def _list(opened: "Lake", as_json: bool) -> None:
    from runnel.project.execution.deliver_sinks import sink_states

    found = sink_states(opened)
    if as_json:
        print_json([one.json() for one in found])
        return
    if not found:
        click.echo('no sinks; rn.sink("dws.seller_day", rn.jdbc(...)) declares one')
        return
    rows = [
        [one.sink.name, one.sink.branch, _state(one), (one.delivered.delivered or "")[:8], _rows(one), _at(one)]
        for one in found
    ]
    click.echo(grid(["sink", "branch", "state", "commit", "rows", "delivered (UTC)"], rows, right=[4]))
    for one in found:
        if one.delivered.problem:
            say(f"\n{one.sink.name}: {one.delivered.problem}")


def _deliver(opened: "Lake", name: str | None, as_json: bool) -> None:
    from runnel.cli.run_progress import watching
    from runnel.project.execution.deliver_sinks import deliver_now

    with watching(quiet=as_json) as watch:
        found = deliver_now(opened, name, watch)
    if as_json:
        print_json([sent.json() for sent in found])
    else:
        if not found:
            click.echo("every sink has everything")
        show(found)
        for sent in found:
            if sent.error is not None:
                say(f"\n{sent.error}")
    sys.exit(1 if any(sent.state == "failed" for sent in found) else 0)


def _reset(opened: "Lake", name: str | None, as_json: bool) -> None:
    from runnel.project.execution.deliver_sinks import reset_sink

    if name is None:
        raise Mistake("SINK_UNNAMED", "which sink is to begin anew?", fix="`runnel sinks` lists them: reset NAME")
    sink = reset_sink(opened, name)
    if as_json:
        print_json({"sink": sink.name, "state": "reset"})
    else:
        click.echo(f"{sink.name} begins anew: the next run, or `runnel sinks deliver`, delivers everything again")


def hand_on(opened: "Lake", branch: str, *, quiet: bool) -> "tuple[Sent, ...]":
    """Deliver what was just committed by hand, and say so; nothing that goes wrong here fails the command."""
    from runnel.cli.run_progress import watching
    from runnel.project.execution.deliver_sinks import deliver_by_hand

    try:
        with watching(quiet=quiet) as watch:
            found = deliver_by_hand(opened, branch, watch)
    except Exception as error:
        what = error.what if isinstance(error, RunnelError) else f"{type(error).__name__}: {error}"
        say(f"warning: nothing was delivered to sinks, the next run goes on: {what}")
        return ()
    if not quiet:
        show(found)
    return found


def show(found: "Sequence[Sent]") -> None:
    """Print a line for each sink that something was delivered to, and a warning for each that fails."""
    for sent in found:
        if sent.commits:
            commits = f" of {count(sent.commits, 'commit')}" if sent.commits > 1 else ""
            click.echo(f"delivered {count(sent.rows, 'row')}{commits} to {sent.sink} in {sent.seconds:.1f} s")
        if sent.warning:
            say(f"warning: {sent.sink}: {sent.warning}")
        if sent.state == "failed" and sent.error is not None:
            say(f"warning: {sent.sink} failed, and goes on with the next run: {sent.error.what}")
        if sent.state == "held":
            say(f"{sent.sink}: another process delivers to it now")


def _state(one: "SinkState") -> str:
    if one.delivered.problem:
        return f"failing since {when(one.delivered.failing_since or '')}, {count(one.behind, 'commit')} behind"
    return f"{count(one.behind, 'commit')} behind" if one.behind else "up to date"


def _rows(one: "SinkState") -> str:
    return "" if one.delivered.rows is None else count(one.delivered.rows)


def _at(one: "SinkState") -> str:
    return when(one.delivered.at) if one.delivered.at and one.delivered.delivered else ""
