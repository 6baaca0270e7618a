"""Describe for people why a table is computed or not. Pure text."""

from collections.abc import Sequence

from runnel.errors import join_names, plural
from runnel.model.change_size import ChangeSize
from runnel.model.date_range import DateRange
from runnel.model.task_result import TaskResult
from runnel.names import TableName
from runnel.plan.facts import SourceChanges

UNCHANGED = "nothing changed"
NO_NEW_FILES = "no new files"
NOTHING_NEW = "nothing new"
EMPTY_TABLE = "no files yet: a table without rows"
BY_HAND = "filled by hand"
QUIET_REASONS = frozenset({UNCHANGED, NO_NEW_FILES, NOTHING_NEW, BY_HAND})  # ordinary reasons to skip, not listed
ROWS_STAY = '(removed="keep")'  # ends the note about files that are gone
VOLATILE = "volatile: never skipped"
REFRESH = "requested by --full-refresh"
NOT_YET = "not computed yet"
REAPPLIED = "its log, or how it is applied, changed"
_SHOWN_REASONS = 3


def describe_outside_change(table: TableName) -> str:
    """Return the reason that a table's content was written outside Runnel's tasks."""
    return f"{table} was changed outside Runnel"


def describe_backfill(days: DateRange) -> str:
    """Return the reason that a backfill requested these days."""
    return f"requested by backfill, {days}"


def describe_known_result(result: TaskResult, branch: str | None) -> str:
    """Describe where an existing result comes from, with its branch if that is not `branch`."""
    elsewhere = branch is not None and result.branch != branch
    return f"known since run {result.run}" + (f" on branch {result.branch}" if elsewhere else "")


def describe_start(result: TaskResult, branch: str | None) -> str:
    """Describe the result that a step starts from, if the table does not hold it."""
    elsewhere = branch is not None and result.branch != branch
    origin = f" on branch {result.branch}" if elsewhere else ", which was not published"
    return f"starting from the result of run {result.run}{origin}"


def describe_change(table: TableName, change: ChangeSize) -> str:
    """Describe how a table changed.

    >>> describe_change(TableName("ods", "orders"), ChangeSize(rows_added=1204, files_added=2))
    'ods.orders gained 1,204 rows in 2 files'
    >>> describe_change(TableName("ods", "orders"), ChangeSize(columns_changed=True, is_recreated=True))
    'ods.orders was created again'
    """
    if not change.is_known:
        return f"the version of {table} last used is gone (retention)"
    if change.is_recreated:
        return f"{table} was created again"
    # A rewritten file counts as added and removed, so the numbers are upper bounds if there are both.
    up_to = "up to " if change.files_added and change.files_removed else ""
    phrases = []
    if change.columns_changed:
        phrases.append("changed its columns")
    if change.columns_added:
        noun = "column" if len(change.columns_added) == 1 else "columns"
        phrases.append(f"gained the {noun} {join_names(change.columns_added)}")
    if change.files_added:
        phrases.append(f"gained {up_to}{_format_rows_in_files(change.rows_added, change.files_added)}")
    if change.files_removed:
        phrases.append(f"lost {up_to}{_format_rows_in_files(change.rows_removed, change.files_removed)}")
    if change.deletes:
        phrases.append("had rows deleted in place")
    return f"{table} " + (_join_phrases(phrases) or "has a new version of the same rows")


def describe_source_changes(changes: SourceChanges) -> str:
    """Describe the changes of a source: the number of files, or its own description.

    >>> describe_source_changes(SourceChanges(new=2, changed=1, removed=1))
    '2 new files, 1 changed, 1 gone'
    >>> describe_source_changes(SourceChanges(changed=1)), describe_source_changes(SourceChanges(removed=2))
    ('1 changed file', '2 files gone')
    """
    if changes.description is not None:
        return changes.description
    first = ""
    more_counts = []
    for number, prefix, suffix in (
        (changes.new, "new ", ""),
        (changes.changed, "changed ", ""),
        (changes.removed, "", " gone"),
    ):
        if number and not first:
            first = plural(number, f"{prefix}file") + suffix
        elif number:
            more_counts.append(f"{number:,} {(prefix + suffix).strip()}")
    return ", ".join([first, *more_counts])


def describe_renamed_files(number: int) -> str:
    """Describe renamed files, whose rows are already in the table.

    >>> describe_renamed_files(1)
    '1 file renamed'
    """
    return f"{plural(number, 'file')} renamed"


def describe_unfinished_files(files: Sequence[str]) -> str:
    """Describe the files that are not read because they are still being written; empty if there are none.

    >>> describe_unfinished_files(["a.csv"]), describe_unfinished_files(["a.csv", "b.csv"])
    ('a.csv is still being written', '2 files are still being written')
    >>> describe_unfinished_files([])
    ''
    """
    if len(files) > 1:
        return f"{len(files):,} files are still being written"
    return f"{files[0]} is still being written" if files else ""


def describe_missing_files(number: int) -> str:
    """Describe the files that are gone and whose rows stay; empty if there are none.

    >>> describe_missing_files(1), describe_missing_files(2), describe_missing_files(0)
    ('1 file is gone; its rows stay (removed="keep")', '2 files are gone; their rows stay (removed="keep")', '')
    """
    if number > 1:
        return f"{number:,} files are gone; their rows stay {ROWS_STAY}"
    return f"1 file is gone; its rows stay {ROWS_STAY}" if number else ""


def join_reasons(texts: Sequence[str], noun: str = "input") -> str:
    """Join several reasons into one, the first few in full.

    >>> join_reasons(["a moved", "b moved", "c moved", "d moved"])
    'a moved; b moved; c moved; and 1 more input changed'
    """
    remaining = len(texts) - _SHOWN_REASONS
    more = [f"and {plural(remaining, f'more {noun}')} changed"] if remaining > 0 else []
    return "; ".join([*texts[:_SHOWN_REASONS], *more])


def _format_rows_in_files(rows: int, files: int) -> str:
    return f"{plural(rows, 'row')} in {plural(files, 'file')}"


def _join_phrases(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
