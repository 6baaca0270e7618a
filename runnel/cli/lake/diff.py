"""`runnel diff`."""

from typing import Any

import click

from runnel.cli.output import command, count, grid, lake, print_json
from runnel.cli.progress import progress
from runnel.client.json_views.diff import diff_json
from runnel.errors import Mistake
from runnel.lake.diff.lake_diff import Diff
from runnel.lake.diff.row_diff import RowDiff
from runnel.names import TableName


@command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--rows", "by_rows", is_flag=True, help="Show the rows that differ, by key where the table has one.")
@click.option("--key", multiple=True, metavar="COLUMN", help="With --rows: the columns that identify a row.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="With --rows: how many.")
def diff(a: str, b: str, table: str | None, by_rows: bool, key: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Compare two versions of the lake: tables, schemas, counts, rows."""
    from runnel.lake.diff.lake_diff import diff as compare
    from runnel.lake.diff.row_diff import diff_rows

    if by_rows and table is None:
        raise Mistake("USAGE", "--rows needs a table", fix="runnel diff A B TABLE --rows")
    with lake() as opened, progress(quiet=as_json) as report:
        name = TableName.parse(table) if table else None
        found = compare(opened.store, a, b, name, progress=report)
        rows = diff_rows(opened.store, a, b, name, key=list(key) or None, limit=limit) if by_rows and name else None
    if as_json:
        print_json(diff_json(found) | ({"rows": _rows_json(rows)} if rows else {}))
    else:
        _show(found)
        if rows is not None:
            _show_rows(rows)
            if any(one.schema for one in found.tables):
                click.echo("rows are compared in the columns that both versions have")


def _show(found: Diff) -> None:
    if not found.tables:
        click.echo("no difference")
        return
    rows = []
    for one in found.tables:
        added = "?" if one.rows_added is None else f"+{one.rows_added:,}"
        removed = "?" if one.rows_removed is None else f"-{one.rows_removed:,}"
        rows.append([one.table, one.change, added, removed])
    click.echo(grid(["table", "change", "rows", ""], rows, right=[2, 3]))
    for one in found.tables:
        for line in one.schema:
            click.echo(f"  {one.table}: {line}")
        if one.reason:
            click.echo(f"  {one.table}: {one.reason}")


def _rows_json(rows: RowDiff) -> dict[str, Any]:
    changed = [
        {"key": list(row.key), "cells": [{"column": c.column, "before": c.before, "after": c.after} for c in row.cells]}
        for row in rows.changed
    ]
    counts = {"rows_added": rows.rows_added, "rows_removed": rows.rows_removed, "rows_changed": rows.rows_changed}
    lists = {
        "added": [list(row) for row in rows.added],
        "removed": [list(row) for row in rows.removed],
        "changed": changed,
    }
    return {"key": list(rows.key), "columns": list(rows.columns), **counts, **lists}


def _show_rows(rows: RowDiff) -> None:
    lines = [["-", *_shown(row)] for row in rows.removed] + [["+", *_shown(row)] for row in rows.added]
    if lines:
        click.echo("\n" + grid(["", *rows.columns], lines))
    if rows.changed:
        by = ", ".join(rows.key)
        cells = [[_plain(row.key), c.column, *_shown((c.before, c.after))] for row in rows.changed for c in row.cells]
        click.echo("\n" + grid([by, "column", "before", "after"], cells))
    shown = len(rows.added) + len(rows.removed) + len(rows.changed)
    total = rows.rows_added + rows.rows_removed + rows.rows_changed
    if total > shown:
        click.echo(f"... {count(total - shown, 'row')} more; -n shows more")


def _shown(row: tuple[Any, ...]) -> list[Any]:
    return ["" if value is None else value for value in row]


def _plain(key: tuple[Any, ...]) -> str:
    return ", ".join(str(part) for part in key)
