"""`runnel gc`, `runnel compact`, `runnel erase` and `runnel fsck`."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import click

from runnel.cli.output import command, count, grid, lake, print_json, size
from runnel.cli.progress import progress
from runnel.errors import Mistake
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.declare.settings import Settings
    from runnel.lake.upkeep.erase.erase import Erased
    from runnel.lake.upkeep.fsck.findings import Report
    from runnel.lake.upkeep.gc.retention import Retention


@command()
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option(
    "--grace", default=None, metavar="TIME", help="Instead of retention.grace. 0s is safe only if nobody else works."
)
def gc(dry_run: bool, grace: str | None, as_json: bool) -> None:
    """Remove files that no retained version needs.

    The first run lists them; a later one, after the grace period, looks again and deletes.
    """
    from runnel.lake.upkeep.gc.collect import gc as sweep

    with lake() as opened, progress(quiet=as_json) as report:
        done = sweep(opened.store, _retention(opened.settings, grace), dry_run=dry_run, progress=report)
    if as_json:
        print_json(dataclasses.asdict(done))
        return
    would = "would be " if dry_run else ""
    squashed = f", {count(done.squashed_commits)} of streams {would}squashed" if done.squashed_commits else ""
    click.echo(f"{count(done.expired_commits, 'commit')} {would}expired{squashed}")
    if done.pruned_events:
        click.echo(f"{count(done.pruned_events, 'event')}, taken in long ago, {would}removed from the inbox")
    click.echo(f"{count(done.deleted, 'file')} ({size(done.deleted_bytes)}) {would}deleted")
    listed = f"{count(done.candidates, 'file')} ({size(done.candidate_bytes)})"
    click.echo(f"{listed} {would}listed for a later gc, {count(done.waiting)} waiting")
    click.echo(f"{count(done.kept, 'file')} needed")


def _retention(settings: "Settings", grace: str | None) -> "Retention":
    from runnel.lake.upkeep.gc.retention import Retention

    given = dict(settings.retention)
    return Retention(**{**given, **({"grace": grace} if grace else {})})


@command()
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
@click.option("--force", is_flag=True, help="Also rewrite files that were registered in place.")
def compact(table: str | None, branch: str, force: bool, as_json: bool) -> None:
    """Rewrite small files into large ones; the rows stay the same."""
    from runnel.lake.upkeep.compact.compact import compact as rewrite

    with lake() as opened, progress(quiet=as_json) as report:
        name = TableName.parse(table) if table else None
        found = rewrite(opened.store, name, branch=branch, force=force, progress=report)
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
        return
    if not found:
        click.echo("nothing to compact")
        return
    rows = [
        [one.table, one.files_before, one.files_after, size(one.bytes_after), one.note or (one.commit or "")[:8]]
        for one in found
    ]
    click.echo(grid(["table", "files before", "after", "size", ""], rows, right=[1, 2, 3]))


@command()
@click.argument("table", metavar="TABLE")
@click.option("--where", required=True, metavar="SQL", help='Which rows, such as "customer_id = 17".')
@click.option("--dry-run", is_flag=True, help="Only say how many rows would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def erase(table: str, where: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove rows through all retained versions: branches, tags and old commits. This can't be undone."""
    from runnel.lake.upkeep.erase.erase import erase as remove

    name = TableName.parse(table)
    with lake() as opened, progress(quiet=as_json) as report:
        if not dry_run and not yes:
            if as_json or not sys.stdin.isatty():
                raise Mistake("ERASE_CONFIRM", "erase can't be undone", fix="add --yes, or look first with --dry-run")
            click.echo(_erasure_text(remove(opened.store, name, where, dry_run=True)))
            click.confirm("erase?", abort=True)
        done = remove(opened.store, name, where, dry_run=dry_run, progress=report)
    if as_json:
        print_json(dataclasses.asdict(done))
    else:
        click.echo(_erasure_text(done, is_done=not dry_run))


def _erasure_text(done: "Erased", *, is_done: bool = False) -> str:
    """Return what an erasure does, and then exactly what it leaves."""
    word = "erased" if is_done else "would be erased"
    copies = f"{_copies(done.copies)} in {count(done.versions, 'version')}"
    lines = [f"{count(done.rows, 'row')} of {done.table} {word}, {copies}"]
    if done.streams:
        lines.append(f"from what streams read: {', '.join(done.streams)}")
    if done.events:
        lines.append(f"{count(done.events, 'event')} of its inbox {word}")
    if done.quarantine is not None and done.quarantine.rows:
        lines.append(f"{count(done.quarantine.rows, 'row')} of {done.quarantine.table} {word}")
    if done.quarantine is not None and done.quarantine.untold:
        rows = count(done.quarantine.untold, "row")
        lines.append(f"left: {rows} of {done.quarantine.table}, which the condition can't test")
        lines.append(f"  {done.quarantine.fix}")
    for derived in done.downstream:
        where = ", ".join(derived.branches)
        lines.append(f"left: {derived.table} on {where}, which was computed from it and may hold what came of the rows")
        lines.append(f"  {derived.fix}")
    lines += [f"left: what sink {sink} has delivered, outside the lake" for sink in done.sinks]
    if done.left:
        lines.append(f"left: {count(done.left, 'file')} until open writes have ended and gc has run")
    return "\n".join(lines)


def _copies(number: int) -> str:
    return "1 copy" if number == 1 else f"{count(number)} copies"


@command()
@click.option("--deep", is_flag=True, help="Also read the contents: row counts and checksums.")
@click.option("--relocate", is_flag=True, help="Mend a lake whose folder was moved.")
@click.option("--adopt", is_flag=True, help="Let this catalog own the warehouse, whichever owned it before.")
def fsck(deep: bool, relocate: bool, adopt: bool, as_json: bool) -> None:
    """Check that every retained commit is readable, and name what is wrong."""
    from runnel.lake.upkeep.fsck.fsck import fsck as check

    moved: dict[str, Any] | None = None
    with lake(moved=relocate, adopt=adopt) as opened, progress(quiet=as_json) as report:
        if relocate:
            from runnel.lake.upkeep.relocate.relocate import relocate as mend

            moved = dataclasses.asdict(mend(opened.store, adopt=adopt, progress=report))
        found = check(opened.store, deep=deep, retention=_retention(opened.settings, None), progress=report)
    if as_json:
        print_json({"relocated": moved, **_report(found)})
    else:
        if moved is not None:
            click.echo(f"relocated: {count(moved['files'], 'file')} written anew")
        _show(found)
    if any(finding.severity == "error" for finding in found.findings):
        sys.exit(1)


def _report(found: "Report") -> dict[str, Any]:
    counts = {"commits": found.commits, "versions": found.versions, "files": found.files, "bytes": found.bytes}
    return {**counts, "findings": [dataclasses.asdict(finding) for finding in found.findings]}


def _show(found: "Report") -> None:
    for finding in found.findings:
        click.echo(f"{finding.severity}: {finding.code}: {finding.what}")
        if finding.commits:
            click.echo(f"  commits: {', '.join(commit[:8] for commit in finding.commits[:8])}")
        if finding.fix:
            click.echo(f"  fix: {finding.fix}")
    errors = sum(finding.severity == "error" for finding in found.findings)
    files = f"{count(found.files, 'file')} ({size(found.bytes)})"
    checked = f"{count(found.commits, 'commit')}, {count(found.versions, 'version')}, {files}"
    click.echo(f"checked {checked}: " + (count(errors, "error") if errors else "sound"))
