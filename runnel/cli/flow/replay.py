"""`runnel replay`."""

import sys
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, format_count, format_table, open_lake, print_json, print_text, print_to_stderr

if TYPE_CHECKING:
    from runnel.project.execution.replay import CommitReplay
    from runnel.run.verify.replay import TableReplay


@command()
@click.argument("ref", metavar="COMMIT")
def replay(ref: str, as_json: bool) -> None:
    """Run that commit's code on that commit's inputs, and compare with what it published."""
    from runnel.project.execution.replay import replay_commit

    with open_lake() as project_lake:
        result = replay_commit(project_lake, ref, None if as_json else print_to_stderr)
    if as_json:
        print_json(result.json())
    else:
        _show_result(result)
    sys.exit(0 if result.is_same else 1)


def _show_result(result: "CommitReplay") -> None:
    if not result.tables:
        print_text(f"there is nothing to replay: no task computed anything for commit {result.commit.id[:8]}")
        return
    rows = [
        [
            table_result.table,
            table_result.action,
            table_result.state,
            _format_rows(table_result),
            f"{table_result.seconds:.1f} s",
        ]
        for table_result in result.tables
    ]
    print_text(format_table(["table", "was", "replay", "rows", "time"], rows, right_aligned=[3, 4]))
    for table_result in result.tables:
        if table_result.state != "same":
            _show_table(table_result)
    if not result.is_same:
        for note in result.notes:
            print_to_stderr(f"note: {note}")
    same_count = sum(table_result.state == "same" for table_result in result.tables)
    print_text(
        f"\n{same_count} of {format_count(len(result.tables), 'table')} as commit {result.commit.id[:8]} published them"
    )


def _format_rows(table_result: "TableReplay") -> str:
    if table_result.rows_again is None or table_result.rows_again == table_result.rows:
        return format_count(table_result.rows) if table_result.rows is not None else ""
    return f"{format_count(table_result.rows)} -> {format_count(table_result.rows_again)}"


def _show_table(table_result: "TableReplay") -> None:
    if table_result.error is not None:
        print_to_stderr(f"\n{table_result.error}")
    if table_result.frame_differences is not None:
        print_text(f"\n{table_result.table}")
        for line in table_result.frame_differences.describe_lines("what was published", "the replay"):
            print_text(f"  {line}")
    for note in table_result.notes:
        print_text(f"  {note}")
