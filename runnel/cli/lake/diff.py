"""`runnel diff`."""

import secrets
from typing import Any

import click

from runnel.cli.output import command, format_count, format_table, open_lake, print_json, print_text
from runnel.cli.progress import show_progress
from runnel.client.json_views.diff import diff_json
from runnel.errors import Mistake
from runnel.lake.diff.row_diff import RowDiff
from runnel.model.work_place import EXECUTORS
from runnel.names import TableName


@command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.argument("table", metavar="[TABLE]", required=False)
@click.option("--rows", "by_rows", is_flag=True, help="Show the rows that differ, by key if the table has one.")
@click.option("--key", multiple=True, metavar="COLUMN", help="With --rows: the columns that identify a row.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="With --rows: maximum number of rows.",
)
def diff(a: str, b: str, table: str | None, by_rows: bool, key: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Compare two versions of the lake: tables, schemas, counts, rows."""
    from runnel.lake.diff.lake_diff import diff_commits as compare
    from runnel.lake.diff.row_diff import diff_rows
    from runnel.project.work_places import create_work_context

    if by_rows and table is None:
        raise Mistake("USAGE", "--rows needs a table", fix="runnel diff A B TABLE --rows")
    with open_lake() as project_lake, show_progress(quiet=as_json) as report_progress:
        name = TableName.parse(table) if table else None
        lake_diff = compare(project_lake.store, a, b, name, report_progress=report_progress)
        work = create_work_context(
            project_lake.settings, project_lake.spark_provider.get, f"diff {secrets.token_hex(4)}", report_progress
        )
        rows = (
            diff_rows(project_lake.store, a, b, name, key=list(key) or None, limit=limit, work=work)
            if by_rows and name
            else None
        )
    if as_json:
        print_json(diff_json(lake_diff) | ({"rows": _row_diff_json(rows)} if rows else {}))
    else:
        print_text(str(lake_diff))
        if rows is not None:
            _show_rows(rows)
            if rows.place is not None and rows.place.name == EXECUTORS:
                print_text(f"rows were compared {rows.place.describe()}")
            if any(table_diff.schema for table_diff in lake_diff.tables):
                print_text("rows are compared in the columns that both versions have")


def _row_diff_json(rows: RowDiff) -> dict[str, Any]:
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
    place = {"place": rows.place.json()} if rows.place is not None and rows.place.name == EXECUTORS else {}
    return {"key": list(rows.key), "columns": list(rows.columns), **counts, **lists, **place}


def _show_rows(rows: RowDiff) -> None:
    lines = [["-", *_blank_nulls(row)] for row in rows.removed] + [["+", *_blank_nulls(row)] for row in rows.added]
    if lines:
        print_text("\n" + format_table(["", *rows.columns], lines))
    if rows.changed:
        key_text = ", ".join(rows.key)
        cells = [
            [_join_key(row.key), c.column, *_blank_nulls((c.before, c.after))]
            for row in rows.changed
            for c in row.cells
        ]
        print_text("\n" + format_table([key_text, "column", "before", "after"], cells))
    shown_count = len(rows.added) + len(rows.removed) + len(rows.changed)
    total = rows.rows_added + rows.rows_removed + rows.rows_changed
    if total > shown_count:
        print_text(f"... {format_count(total - shown_count, 'row')} more; -n shows more")


def _blank_nulls(row: tuple[Any, ...]) -> list[Any]:
    return ["" if value is None else value for value in row]


def _join_key(key: tuple[Any, ...]) -> str:
    return ", ".join(str(part) for part in key)
