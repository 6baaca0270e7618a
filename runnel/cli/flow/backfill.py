"""`runnel backfill` and `runnel backfills`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.output import (
    command,
    format_count,
    format_size,
    format_table,
    open_lake,
    print_json,
    print_text,
    print_to_stderr,
)

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.backfills import Backfill
    from runnel.model.run_request import RunRequest
    from runnel.project.execution.backfill import BackfillPreview, BackfillResult
    from runnel.run.results.run_result import ProgressCallback


@command()
@click.option("-s", "--select", multiple=True, required=True, metavar="SEL", help="Tables, such as dws.* or tag:daily.")
@click.option("--from", "first", required=True, metavar="DAY", help="The first day.")
@click.option("--to", "last", required=True, metavar="DAY", help="The last day, which is included.")
@click.option("--chunk", default=None, metavar="DAYS", help="Days per run and commit, such as 7d.")
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help="Value of a keyword parameter of tasks.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--local", is_flag=True, help="Compute in this process, even if a worker is running.")
@click.option("--wait/--no-wait", default=True, help="Wait until the backfill has ended; the default.")
def backfill(
    select: tuple[str, ...],
    first: str,
    last: str,
    chunk: str | None,
    branch: str,
    values: tuple[str, ...],
    dry_run: bool,
    local: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Compute the slices of some days again, with everything downstream; sources are not read."""
    from runnel.cli.run_progress import watch_run
    from runnel.project.execution import backfill
    from runnel.project.planning.plan_project import load_project_flow

    request, days_per_chunk = backfill.build_backfill_request(select, first, last, chunk=chunk, branch=branch)
    with open_lake(overrides=values) as project_lake:
        flow = load_project_flow(project_lake)
        if dry_run or (sys.stderr.isatty() and not as_json):
            preview = backfill.preview_backfill(project_lake, request, days_per_chunk, flow)
            if dry_run:
                print_json(preview.json()) if as_json else print_text(_format_preview(preview))
                return
            print_to_stderr(_format_preview(preview) + "\n")
        with watch_run(quiet=as_json) as watch:
            backfill_id = None if local else _submit_to_worker(project_lake, request, days_per_chunk, values)
            if backfill_id is not None and not wait:
                print_json({"backfill": backfill_id}) if as_json else print_text(f"backfill {backfill_id} is queued")
                return
            if backfill_id is not None:
                result = _follow_on_worker(project_lake, request, days_per_chunk, backfill_id, watch)
            else:
                result = backfill.backfill(project_lake, request, days_per_chunk, flow=flow, watch=watch)
    if as_json:
        print_json(result.json())
    else:
        _show_result(result)
    sys.exit({"failed": 1, "cancelled": 130}.get(result.state, 0))


@command()
@click.argument("action", required=False, type=click.Choice(["pause", "resume", "cancel"]))
@click.argument("name", required=False, metavar="[BACKFILL]")
def backfills(action: str | None, name: str | None, as_json: bool) -> None:
    """List backfills that workers compute; pause, resume or cancel one."""
    from runnel.lake.control import backfills

    if action is not None and name is None:
        raise click.UsageError(f"which backfill? write `runnel backfills {action} BACKFILL`")
    with open_lake() as project_lake:
        db = project_lake.store.db
        if action is not None and name is not None:
            change = {"pause": backfills.pause, "resume": backfills.resume, "cancel": backfills.cancel}[action]
            entries = [change(db, name)]
        else:
            entries = db.read(lambda connection: backfills.list_backfills(connection, 20))
    if as_json:
        print_json(entries[0].json() if action else [entry.json() for entry in entries])
    elif not entries:
        print_text("no backfills yet; `runnel backfill` queues one if a worker is running")
    else:
        rows = [_build_row(entry) for entry in entries]
        print_text(format_table(["backfill", "state", "branch", "days", "chunks done", "by", "selects"], rows))


def _build_row(entry: "Backfill") -> list[str]:
    from runnel.lake.control.backfills import chunk_days

    done_count = sum(chunk.state in ("succeeded", "nothing") for chunk in entry.chunks)
    days = f"{chunk_days(entry.chunks[0]).first} to {chunk_days(entry.chunks[-1]).last}"
    select = " ".join(entry.request.select)
    return [entry.id, entry.state, entry.branch, days, f"{done_count} of {len(entry.chunks)}", entry.author, select]


def _submit_to_worker(
    project_lake: "Lake", request: "RunRequest", days_per_chunk: int | None, values: tuple[str, ...]
) -> str | None:
    """Queue a backfill for a running worker and return its id; None if no worker runs."""
    from dataclasses import replace

    from runnel.cli.output import read_global_options
    from runnel.project.execution.dispatch import dispatch_backfill

    overrides = (*read_global_options().get("overrides", ()), *values)
    return dispatch_backfill(project_lake, replace(request, overrides=overrides), days_per_chunk)


def _follow_on_worker(
    project_lake: "Lake",
    request: "RunRequest",
    days_per_chunk: int | None,
    backfill_id: str,
    watch: "ProgressCallback | None",
) -> "BackfillResult":
    from runnel.project.execution.backfill import BackfillResult
    from runnel.project.execution.follow_run import follow_backfill

    assert request.days is not None
    runs = list(follow_backfill(project_lake, backfill_id, watch, print_to_stderr))
    return BackfillResult.from_runs(request.days, request.days.chunks(days_per_chunk), runs)


def _format_preview(preview: "BackfillPreview") -> str:
    rows = [
        [
            line.table,
            line.action,
            "" if line.slices is None else format_count(line.slices),
            format_count(line.rows) if line.chunks else "",
            format_size(line.bytes) if line.chunks else "",
            line.reason,
        ]
        for line in preview.tables
    ]
    precision = "at least" if any(line.chunks and line.bytes is None for line in preview.tables) else "about"
    chunks = f"{format_count(len(preview.chunks), 'chunk')}, a run and a commit each"
    total = (
        f"reads {precision} {format_count(preview.rows, 'row')}, "
        f"{format_size(preview.bytes)}; {chunks}; on {preview.branch}"
    )
    return (
        format_table(["table", "action", "slices", "rows", "bytes", "why"], rows, right_aligned=[2, 3, 4])
        + f"\n\n{total}"
    )


def _show_result(result: "BackfillResult") -> None:
    from runnel.cli.flow.run import show_run

    for number, (chunk, run) in enumerate(zip(result.chunks, result.runs, strict=False), 1):
        if len(result.chunks) > 1:
            print_text(("\n" if number > 1 else "") + f"chunk {number} of {len(result.chunks)}: {chunk}")
        show_run(run)
    if result.next is not None:
        finished_count = sum(run.state in ("succeeded", "nothing") for run in result.runs)
        print_to_stderr(
            f"{finished_count} of {format_count(len(result.chunks), 'chunk')} "
            f"finished; continue with --from {result.next.first}"
        )
