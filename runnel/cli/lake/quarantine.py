"""`runnel quarantine`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runnel.cli.output import (
    command,
    confirm,
    format_count,
    format_table,
    format_time,
    open_lake,
    print_data,
    print_json,
    print_text,
    print_to_stderr,
)
from runnel.client.json_views.repair import release_to_json
from runnel.declare.options.file_formats import infer_format
from runnel.errors import Mistake, join_names
from runnel.names import TableName
from runnel.project.inspection.quarantine import quarantined_row_json

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.ingest.release.release import ReleaseResult
    from runnel.connect.load.quarantined_row import QuarantinedRow

_MAX_ROW_LENGTH = 60


@command()
@click.argument("table", required=False)
@click.argument("action", required=False, type=click.Choice(["release", "discard"]), metavar="[release|discard]")
@click.argument("corrected", required=False, metavar="[FILE]")
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option("--file", default=None, metavar="NAME", help="Only rows that came from this file.")
@click.option("--limit", default=20, show_default=True, help="How many rows to show; 0 shows all.")
@click.option("--raw", is_flag=True, help="Print the rows as a file that you can correct and release.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation before `discard`.")
def quarantine(
    table: str | None,
    action: str | None,
    corrected: str | None,
    branch: str,
    file: str | None,
    limit: int,
    raw: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the rows of TABLE that were set aside, and why; `release` processes them again, `discard` removes them.

    With FILE, `release` processes the corrected rows in it instead. Without TABLE, list all tables with such rows.
    """
    with open_lake() as project_lake:
        if table is None:
            _list_tables(project_lake, branch, as_json)
        elif action == "release":
            result = project_lake.release(table, Path(corrected) if corrected else None, file=file, branch=branch)
            _show_release(result, table, corrected, limit, as_json)
            if result.commit is None:
                raise SystemExit(1)
        elif action == "discard":
            if corrected:
                fix = f"runnel quarantine {table} discard --file NAME discards the rows of one file"
                raise Mistake("DISCARD_FILE", f"`discard` takes no file: {corrected}", fix=fix)
            _discard_rows(project_lake, table, file, branch, yes, as_json)
        elif raw and not as_json:
            _print_raw_rows(project_lake, table, file, branch)
        else:
            _show_rows(project_lake, table, file, branch, limit, as_json)


def _list_tables(project_lake: "Lake", branch: str, as_json: bool) -> None:
    entries = project_lake.quarantines(branch=branch)
    if as_json:
        print_json([entry.json() for entry in entries])
    elif not entries:
        print_text("no rows are set aside")
    else:
        rows = [[entry.table, format_count(entry.rows), entry.quarantine] for entry in entries]
        print_text(format_table(["table", "rows", "quarantine table"], rows, right_aligned=[1]))


def _print_raw_rows(project_lake: "Lake", table: str, file: str | None, branch: str) -> None:
    from runnel.project.execution.release import format_quarantined_rows

    rows = project_lake.quarantine(table, branch=branch, file=file)
    for line in format_quarantined_rows(project_lake, table, rows, branch):
        print_data(line)
    unread_files = [row.file or "?" for row in rows if row.raw is None]
    if unread_files:
        names = join_names(unread_files)
        print_to_stderr(f"no rows of {names}, which can't be read: correct the file, and `runnel run` reads it again")


def _show_rows(project_lake: "Lake", table: str, file: str | None, branch: str, limit: int, as_json: bool) -> None:
    rows = project_lake.quarantine(table, branch=branch, file=file)
    visible_rows = rows[:limit] if limit else rows
    if as_json:
        print_json({"table": table, "total": len(rows), "rows": [quarantined_row_json(row) for row in visible_rows]})
        return
    if not rows:
        of_file = f" that came from {file}" if file else ""
        print_text(f"no row of {table}{of_file} is set aside")
        return
    print_text(_format_rows(visible_rows))
    if len(visible_rows) < len(rows):
        print_text(f"{len(rows) - len(visible_rows):,} more; --limit 0 shows all")
    print_text(_describe_next_step(table, rows))


def _format_rows(rows: "Sequence[QuarantinedRow]") -> str:
    """Return rows as a table, with a column for what is wrong and, for rows of a source, columns for their place."""
    if any(row.file for row in rows):
        cells = [
            [format_time(row.at.isoformat()), row.file or "", row.position or "", row.cause, _shorten_row(row.raw)]
            for row in rows
        ]
        headers = ["set aside (UTC)", "file", "position", "cause", "row"]
        return format_table(headers, cells, uncut=[0, 2], optional=[0], wrapped=[1, 3])
    cells = [[format_time(row.at.isoformat()), row.cause, _shorten_row(row.raw)] for row in rows]
    return format_table(["set aside (UTC)", "cause", "row"], cells, uncut=[0], optional=[0], wrapped=[1])


def _describe_next_step(table: str, rows: "Sequence[QuarantinedRow]") -> str:
    discard_text = f"`runnel quarantine {table} discard` removes them"
    if not any(row.file for row in rows):
        return (
            "a task made these rows: correct the task, its check or what it reads, and `runnel run` computes it again; "
            + discard_text
        )
    if all(row.raw is None for row in rows):
        return f"these files could not be read: correct them, and `runnel run` reads them again; {discard_text}"
    suffix = "csv" if any(infer_format(row.file or "") == "csv" for row in rows) else "jsonl"
    return (
        f"`runnel quarantine {table} --raw > bad.{suffix}` writes them to a file; when it is corrected, "
        f"`runnel quarantine {table} release bad.{suffix}` releases them; {discard_text}"
    )


def _show_release(result: "ReleaseResult", table: str, corrected: str | None, limit: int, as_json: bool) -> None:
    visible_rows = result.still_bad[:limit] if limit else result.still_bad
    if as_json:
        print_json(release_to_json(table, result, limit))
        return
    if visible_rows:
        line_title = [f"line of {corrected}"] if corrected else []
        cells = [
            [
                *([bad_row.line or ""] if corrected else []),
                bad_row.row.file or "",
                bad_row.row.position or "",
                bad_row.row.cause,
                _shorten_row(bad_row.row.raw),
            ]
            for bad_row in visible_rows
        ]
        headers = [*line_title, "file", "position", "cause", "row"]
        print_text(format_table(headers, cells, uncut=[len(headers) - 3], wrapped=[len(headers) - 4, len(headers) - 2]))
    if len(visible_rows) < result.bad:
        where = (
            "--limit 0 shows all" if result.bad == len(result.still_bad) else f"`runnel quarantine {table}` shows all"
        )
        print_text(f"{result.bad - len(visible_rows):,} more; {where}")
    print_text(_summarize_release(result, table, corrected))


def _summarize_release(result: "ReleaseResult", table: str, corrected: str | None) -> str:
    notes = [f"{format_count(result.bad, 'row')} still bad"] if result.bad and result.commit else []
    if result.missing:
        verb = "stays" if result.missing == 1 else "stay"
        notes.append(f"{format_count(result.missing, 'row')} not in {corrected} {verb} in quarantine")
    if result.unknown:
        verb = "is" if result.unknown == 1 else "are"
        notes.append(f"{format_count(result.unknown, 'row')} of {corrected} {verb} no longer in quarantine")
    suffix = "".join(f"; {note}" for note in notes)
    if result.commit is None:
        return f"{format_count(result.rows, 'row')} of {TableName.parse(table)}: all still bad; nothing changed{suffix}"
    return f"{format_count(result.accepted, 'row')} went into {table}{suffix}, commit {result.commit.id[:8]}"


def _discard_rows(project_lake: "Lake", table: str, file: str | None, branch: str, yes: bool, as_json: bool) -> None:
    rows = project_lake.quarantine(table, branch=branch, file=file)
    if rows and not yes:
        of_file = f" from {file}" if file else ""
        what = f"{format_count(len(rows), 'quarantined row')} of {table}{of_file} would be discarded"
        if as_json or not sys.stdin.isatty():
            raise Mistake("DISCARD_CONFIRM", what, fix=f"add --yes; `runnel quarantine {table}` shows them")
        confirm(f"{what}: discard?")
    result = project_lake.discard(table, file=file, branch=branch)
    if as_json:
        print_json({"table": table, "rows": result.rows, "commit": result.commit.id})
    else:
        commit = result.commit.id[:8]
        print_text(
            f"{format_count(result.rows, 'quarantined row')} of {table} discarded, commit {commit}; "
            f"`runnel revert {commit}` restores them"
        )


def _shorten_row(text: str | None) -> str:
    flat = " ".join((text or "").split())
    return flat if len(flat) <= _MAX_ROW_LENGTH else flat[: _MAX_ROW_LENGTH - 3] + "..."
