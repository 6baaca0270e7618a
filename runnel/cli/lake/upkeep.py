"""`runnel gc`, `runnel compact`, `runnel erase` and `runnel fsck`."""

import dataclasses
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from runnel.cli.output import (
    command,
    confirm,
    format_count,
    format_size,
    format_table,
    open_lake,
    print_json,
    print_text,
)
from runnel.cli.progress import show_progress
from runnel.errors import Mistake
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.declare.settings import Settings
    from runnel.lake.upkeep.compact.compact import CompactionResult
    from runnel.lake.upkeep.erase.erase import ErasureResult
    from runnel.lake.upkeep.fsck.findings import FsckReport
    from runnel.lake.upkeep.gc.retention import Retention
    from runnel.lake.work_runner import WorkContext


@command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--grace",
    default=None,
    metavar="TIME",
    help="Grace period instead of retention.grace; 0s is safe only if nothing else uses the lake.",
)
def gc(dry_run: bool, grace: str | None, as_json: bool) -> None:
    """Remove files that no retained version needs.

    The first gc lists them; a later gc, after the grace period, checks again and deletes them.
    """
    from runnel.lake.upkeep.gc.collect import gc as sweep

    with open_lake() as project_lake, show_progress(quiet=as_json) as report_progress:
        result = sweep(
            project_lake.store,
            _build_retention(project_lake.settings, grace),
            dry_run=dry_run,
            report_progress=report_progress,
        )
    if as_json:
        print_json(dataclasses.asdict(result))
        return
    would = "would be " if dry_run else ""
    squashed = (
        f", {format_count(result.squashed_commits)} of streams {would}squashed" if result.squashed_commits else ""
    )
    print_text(f"{format_count(result.expired_commits, 'commit')} {would}expired{squashed}")
    if result.pruned_events:
        print_text(f"{format_count(result.pruned_events, 'event')}, ingested long ago, {would}removed from the inbox")
    print_text(f"{format_count(result.deleted, 'file')} ({format_size(result.deleted_bytes)}) {would}deleted")
    candidates_text = f"{format_count(result.candidates, 'file')} ({format_size(result.candidate_bytes)})"
    print_text(f"{candidates_text} {would}listed for a later gc, {format_count(result.waiting)} waiting")
    print_text(f"{format_count(result.kept, 'file')} needed")


def _build_retention(settings: "Settings", grace: str | None) -> "Retention":
    from runnel.lake.upkeep.gc.retention import Retention

    options = dict(settings.retention)
    return Retention(**{**options, **({"grace": grace} if grace else {})})


@command()
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option("--force", is_flag=True, help="Also rewrite files that were registered in place.")
def compact(table: str | None, branch: str, force: bool, as_json: bool) -> None:
    """Rewrite small files into large ones; the rows stay the same."""
    from runnel.lake.upkeep.compact.compact import compact as rewrite
    from runnel.project.work_places import create_work_context, get_shown_place

    with open_lake() as project_lake, show_progress(quiet=as_json) as report_progress:
        name, settings = TableName.parse(table) if table else None, project_lake.settings
        work = create_work_context(
            settings, project_lake.spark_provider.get, f"compact {secrets.token_hex(4)}", report_progress
        )
        results = [
            dataclasses.replace(result, place=get_shown_place(settings, result.place))
            for result in rewrite(project_lake.store, name, branch=branch, force=force, work=work)
        ]
    if as_json:
        print_json([_result_json(result) for result in results])
        return
    if not results:
        print_text("nothing to compact")
        return
    rows = [
        [
            result.table,
            result.files_before,
            result.files_after,
            format_size(result.bytes_after),
            result.note or (result.commit or "")[:8],
        ]
        for result in results
    ]
    print_text(format_table(["table", "files before", "after", "size", ""], rows, right_aligned=[1, 2, 3]))
    for result in results:
        if result.place is not None:
            print_text(f"{result.table} was rewritten {result.place.describe()}")


@command()
@click.argument("table", metavar="TABLE")
@click.option("--where", required=True, metavar="SQL", help='Which rows, such as "customer_id = 17".')
@click.option("--dry-run", is_flag=True, help="Only show how many rows would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def erase(table: str, where: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove rows from all retained versions: branches, tags and old commits. This can't be undone."""
    from runnel.lake.upkeep.erase.erase import erase as remove
    from runnel.lake.upkeep.erase.unsearched_places import find_log_files
    from runnel.project.work_places import create_work_context, get_shown_place

    name = TableName.parse(table)
    with open_lake() as project_lake, show_progress(quiet=as_json) as report_progress:
        settings = project_lake.settings
        work = create_work_context(
            settings, project_lake.spark_provider.get, f"erase {secrets.token_hex(4)}", report_progress
        )

        def run_erasure(work: "WorkContext", *, is_preview: bool) -> "ErasureResult":
            erased = remove(project_lake.store, name, where, dry_run=is_preview, work=work)
            places = (*erased.unsearched, *find_log_files(settings.home / "logs"))
            return dataclasses.replace(erased, place=get_shown_place(settings, erased.place), unsearched=places)

        if not dry_run and not yes:
            if as_json or not sys.stdin.isatty():
                raise Mistake("ERASE_CONFIRM", "erase can't be undone", fix="add --yes, or look first with --dry-run")
            print_text(_format_erasure(run_erasure(dataclasses.replace(work, report_progress=None), is_preview=True)))
            confirm("erase?")
        result = run_erasure(work, is_preview=dry_run)
    if as_json:
        print_json(_result_json(result))
    else:
        print_text(_format_erasure(result, is_done=not dry_run))


def _result_json(result: "CompactionResult | ErasureResult") -> dict[str, Any]:
    """Return a result as JSON; with the place of the work only if users can choose it."""
    fields = dataclasses.asdict(result)
    del fields["place"]
    return fields | ({"place": result.place.json()} if result.place is not None else {})


def _format_erasure(erased: "ErasureResult", *, is_done: bool = False) -> str:
    """Return what an erasure removes, and then exactly what it leaves."""
    verb = "erased" if is_done else "would be erased"
    copies = f"{_format_copies(erased.copies)} in {format_count(erased.versions, 'version')}"
    lines = [f"{format_count(erased.rows, 'row')} of {erased.table} {verb}, {copies}"]
    if erased.streams:
        lines.append(f"from what streams read: {', '.join(erased.streams)}")
    if erased.events:
        lines.append(f"{format_count(erased.events, 'event')} of its inbox {verb}")
    if erased.quarantine is not None and erased.quarantine.rows:
        lines.append(f"{format_count(erased.quarantine.rows, 'row')} of {erased.quarantine.table} {verb}")
    if erased.answers.requests or erased.answers.keys:
        keys = f"{format_count(erased.answers.keys)} of repeatable requests"
        lines.append(f"stored answers {verb}: {format_count(erased.answers.requests)} of workers, {keys}")
    lines += _list_leftovers(erased)
    if erased.place is not None:
        lines.append(f"files were searched {'and rewritten ' if is_done else ''}{erased.place.describe()}")
    if erased.left:
        lines.append(f"left: {format_count(erased.left, 'file')} until open writes have ended and gc has run")
    return "\n".join(lines)


def _list_leftovers(erased: "ErasureResult") -> list[str]:
    """Return lines about what an erasure leaves, each with what to do about it."""
    lines: list[str] = []
    if erased.quarantine is not None and erased.quarantine.untold:
        rows = format_count(erased.quarantine.untold, "row")
        lines.append(f"left: {rows} of {erased.quarantine.table}, which the condition can't test")
        lines.append(f"  {erased.quarantine.fix}")
    for derived in erased.downstream:
        where = ", ".join(derived.branches)
        lines.append(
            f"left: {derived.table} on {where}, which was computed from it and may hold data derived from the rows"
        )
        lines.append(f"  {derived.fix}")
    lines += [f"left: what sink {sink} has delivered, outside the lake" for sink in erased.sinks]
    for unsearched in erased.unsearched:
        lines.append(f"not searched: {unsearched.place} ({format_count(unsearched.entries)})")
        lines.append(f"  {unsearched.fix}")
    return lines


def _format_copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{format_count(number)} copies"


@command()
@click.option("--deep", is_flag=True, help="Also read the contents: row counts and checksums.")
@click.option("--relocate", is_flag=True, help="Repair a lake whose folder was moved.")
@click.option(
    "--adopt", is_flag=True, help="Make this catalog the owner of the warehouse, whichever catalog owned it before."
)
def fsck(deep: bool, relocate: bool, adopt: bool, as_json: bool) -> None:
    """Check that every retained commit is readable, and name what is wrong."""
    from runnel.lake.upkeep.fsck.fsck import fsck as check

    relocation: dict[str, Any] | None = None
    with open_lake(moved=relocate, adopt=adopt) as project_lake, show_progress(quiet=as_json) as report_progress:
        if relocate:
            from runnel.lake.upkeep.relocate.relocate import relocate as mend

            relocation = dataclasses.asdict(mend(project_lake.store, adopt=adopt, report_progress=report_progress))
        fsck_report = check(
            project_lake.store,
            deep=deep,
            retention=_build_retention(project_lake.settings, None),
            report_progress=report_progress,
        )
    if as_json:
        print_json({"relocated": relocation, **_report_json(fsck_report)})
    else:
        if relocation is not None:
            print_text(f"relocated: {format_count(relocation['files'], 'file')} rewritten")
        _show_findings(fsck_report)
    if any(finding.severity == "error" for finding in fsck_report.findings):
        sys.exit(1)


def _report_json(fsck_report: "FsckReport") -> dict[str, Any]:
    counts = {
        "commits": fsck_report.commits,
        "versions": fsck_report.versions,
        "files": fsck_report.files,
        "bytes": fsck_report.bytes,
    }
    return {**counts, "findings": [dataclasses.asdict(finding) for finding in fsck_report.findings]}


def _show_findings(fsck_report: "FsckReport") -> None:
    for finding in fsck_report.findings:
        print_text(f"{finding.severity}: {finding.code}: {finding.what}")
        if finding.commits:
            print_text(f"  commits: {', '.join(commit[:8] for commit in finding.commits[:8])}")
        if finding.fix:
            print_text(f"  fix: {finding.fix}")
    errors = sum(finding.severity == "error" for finding in fsck_report.findings)
    files = f"{format_count(fsck_report.files, 'file')} ({format_size(fsck_report.bytes)})"
    checked = f"{format_count(fsck_report.commits, 'commit')}, {format_count(fsck_report.versions, 'version')}, {files}"
    print_text(f"checked {checked}: " + (format_count(errors, "error") if errors else "sound"))
