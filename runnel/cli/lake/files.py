"""`runnel put`, `runnel get` and `runnel ls`."""

from pathlib import Path

import click

from runnel.cli.output import command, count, grid, lake, print_json, size
from runnel.cli.progress import progress
from runnel.names import TableName


@command()
@click.argument("table", metavar="TABLE")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--branch", default="main", metavar="B", help="Which branch; main by default.")
@click.option("--prefix", default="", metavar="FOLDER", help="The folder in the table to put them in.")
@click.option("-m", "--message", default=None, help="What the commit says.")
def put(table: str, paths: tuple[str, ...], branch: str, prefix: str, message: str | None, as_json: bool) -> None:
    """Put files and folders into a file table, in one commit."""
    from runnel.lake.files.put import put as put_files

    with lake() as opened, progress(quiet=as_json) as report:
        sources = [Path(path) for path in paths]
        name = TableName.parse(table)
        done = put_files(opened.store, name, sources, branch=branch, prefix=prefix, message=message, progress=report)
    if as_json:
        facts = {"added": done.added, "replaced": done.replaced, "unchanged": done.unchanged, "bytes": done.bytes}
        print_json({"table": table, "commit": done.commit.id if done.commit else None, **facts})
        return
    if done.commit is None:
        click.echo(f"nothing new: {count(done.unchanged, 'file')} unchanged in {table}")
        return
    parts = [
        f"{count(number)} {word}"
        for number, word in ((done.added, "added"), (done.replaced, "replaced"), (done.unchanged, "unchanged"))
        if number
    ]
    click.echo(f"put into {table}: {', '.join(parts)} ({size(done.bytes)}), commit {done.commit.id[:8]}")


@command()
@click.argument("table", metavar="TABLE")
@click.argument("glob", metavar="[GLOB]", required=False)
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where to write them.")
@click.option("--at", "ref", default="main", metavar="REF", help="Which version; main by default.")
@click.option("--overwrite", is_flag=True, help="Replace files that are there with other contents.")
def get(table: str, glob: str | None, out: Path, ref: str, overwrite: bool, as_json: bool) -> None:
    """Get files out of a file table; every one is verified."""
    from runnel.lake.files.get import get as get_files

    with lake() as opened, progress(quiet=as_json) as report:
        done = get_files(opened.store, TableName.parse(table), glob, out, at=ref, overwrite=overwrite, progress=report)
    if as_json:
        print_json({"table": table, "written": done.written, "unchanged": done.unchanged, "bytes": done.bytes})
    else:
        same = f", {count(done.unchanged)} there already" if done.unchanged else ""
        click.echo(f"got {count(done.written, 'file')} ({size(done.bytes)}) into {out}{same}")


@command()
@click.argument("table", metavar="TABLE")
@click.argument("glob", metavar="[GLOB]", required=False)
@click.option("--at", "ref", default="main", metavar="REF", help="Which version; main by default.")
def ls(table: str, glob: str | None, ref: str, as_json: bool) -> None:
    """List the files of a file table; `*` stays within a folder, `**` crosses folders."""
    from runnel.lake.files.ls import ls as list_files

    with lake() as opened:
        found = list(list_files(opened.store, TableName.parse(table), glob, at=ref))
    if as_json:
        print_json(
            [
                {"path": one.path, "size": one.size, "modified_at": one.modified_at, "sha256": one.sha256}
                for one in found
            ]
        )
    elif not found:
        click.echo(f"no files in {table}" + (f" match {glob}" if glob else ""))
    else:
        rows = [[size(one.size), str(one.modified_at)[:19] if one.modified_at else "", one.path] for one in found]
        click.echo(grid(["size", "modified (UTC)", "path"], rows, right=[0]))
