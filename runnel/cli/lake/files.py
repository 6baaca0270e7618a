"""`runnel put`, `runnel get`, `runnel ls` and `runnel rm`."""

from pathlib import Path

import click

from runnel.cli.output import command, format_count, format_size, format_table, open_lake, print_json, print_text
from runnel.cli.progress import show_progress
from runnel.names import TableName


@command()
@click.argument("table", metavar="TABLE")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option("--prefix", default="", metavar="FOLDER", help="Folder in the table for these files.")
@click.option("-m", "--message", default=None, help="Message of the commit.")
def put(table: str, paths: tuple[str, ...], branch: str, prefix: str, message: str | None, as_json: bool) -> None:
    """Put files and folders into a file table, in one commit."""
    from runnel.project.execution.put import put as put_files

    with open_lake() as project_lake, show_progress(quiet=as_json) as report_progress:
        sources = [Path(path) for path in paths]
        name = TableName.parse(table)
        result = put_files(
            project_lake,
            name,
            sources,
            branch=branch,
            prefix=prefix,
            message=message,
            report_progress=report_progress,
        )
    if as_json:
        facts = {
            "added": result.added,
            "replaced": result.replaced,
            "unchanged": result.unchanged,
            "bytes": result.bytes,
        }
        place = {"place": result.place.json()} if result.place is not None else {}
        print_json({"table": table, "commit": result.commit.id if result.commit else None, **facts, **place})
        return
    if result.commit is None:
        print_text(f"nothing new: {format_count(result.unchanged, 'file')} unchanged in {table}")
        return
    parts = [
        f"{format_count(number)} {outcome}"
        for number, outcome in ((result.added, "added"), (result.replaced, "replaced"), (result.unchanged, "unchanged"))
        if number
    ]
    print_text(f"put into {table}: {', '.join(parts)} ({format_size(result.bytes)}), commit {result.commit.id[:8]}")
    if result.place is not None:
        print_text(f"files were read {result.place.describe()}")


@command()
@click.argument("table", metavar="TABLE")
@click.argument("glob", metavar="[GLOB]", required=False)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder to write the files to."
)
@click.option("--at", "ref", default="main", metavar="REF", help="Branch, tag, commit or main@TIME; main by default.")
@click.option("--overwrite", is_flag=True, help="Replace existing files that have other contents.")
def get(table: str, glob: str | None, out: Path, ref: str, overwrite: bool, as_json: bool) -> None:
    """Get files out of a file table; every one is verified."""
    from runnel.lake.files.get import get_files

    with open_lake() as project_lake, show_progress(quiet=as_json) as report_progress:
        result = get_files(
            project_lake.store,
            TableName.parse(table),
            glob,
            out,
            at=ref,
            overwrite=overwrite,
            report_progress=report_progress,
        )
    if as_json:
        print_json({"table": table, "written": result.written, "unchanged": result.unchanged, "bytes": result.bytes})
    else:
        unchanged_text = f", {format_count(result.unchanged)} there already" if result.unchanged else ""
        print_text(
            f"got {format_count(result.written, 'file')} ({format_size(result.bytes)}) into {out}{unchanged_text}"
        )


@command()
@click.argument("table", metavar="TABLE")
@click.argument("glob", metavar="[GLOB]", required=False)
@click.option("--at", "ref", default="main", metavar="REF", help="Branch, tag, commit or main@TIME; main by default.")
def ls(table: str, glob: str | None, ref: str, as_json: bool) -> None:
    """List the files of a file table; `*` stays within a folder, `**` crosses folders."""
    from runnel.lake.files.ls import list_files

    with open_lake() as project_lake:
        files = list(list_files(project_lake.store, TableName.parse(table), glob, at=ref))
    if as_json:
        print_json(
            [
                {"path": file.path, "size": file.size, "modified_at": file.modified_at, "sha256": file.sha256}
                for file in files
            ]
        )
    elif not files:
        print_text(f"no files in {table}" + (f" match {glob}" if glob else ""))
    else:
        rows = [
            [format_size(file.size), str(file.modified_at)[:19] if file.modified_at else "", file.path]
            for file in files
        ]
        print_text(format_table(["size", "modified (UTC)", "path"], rows, right_aligned=[0]))


@command()
@click.argument("table", metavar="TABLE")
@click.argument("glob", metavar="GLOB")
@click.option("--branch", default="main", metavar="B", help="Branch; main by default.")
@click.option("-m", "--message", default=None, help="Message of the commit.")
@click.option("--dry-run", is_flag=True, help="Only show which files would be removed.")
def rm(table: str, glob: str, branch: str, message: str | None, dry_run: bool, as_json: bool) -> None:
    """Remove files from a file table, in one commit; older commits keep them."""
    from runnel.lake.files.remove import remove_files

    with open_lake() as project_lake:
        name = TableName.parse(table)
        result = remove_files(project_lake.store, name, [glob], branch=branch, message=message, dry_run=dry_run)
    if as_json:
        facts = {"removed": len(result.paths), "bytes": result.bytes, "paths": list(result.paths)}
        print_json({"table": table, "commit": result.commit.id if result.commit else None, **facts, "dry_run": dry_run})
        return
    amount = f"{format_count(len(result.paths), 'file')} ({format_size(result.bytes)})"
    if dry_run:
        print_text("\n".join((*result.paths, f"{amount} would be removed from {table}")))
    elif result.commit is None:
        print_text(f"nothing to remove: another writer removed {amount} from {table} meanwhile")
    else:
        print_text(f"removed from {table}: {amount}, commit {result.commit.id[:8]}")
