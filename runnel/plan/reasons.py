"""Why a table is computed or not, in words for people. Pure text."""

from collections.abc import Sequence

from runnel.errors import listed
from runnel.names import TableName
from runnel.plan.date_range import Days
from runnel.plan.facts import Arrivals, Movement, Result

UNCHANGED = "nothing changed"
NO_NEW_FILES = "no new files"
NOTHING_NEW = "nothing new"
BY_HAND = "filled by hand"
QUIET = frozenset({UNCHANGED, NO_NEW_FILES, NOTHING_NEW, BY_HAND})  # why most tables are skipped: not worth a line each
VOLATILE = "volatile: never skipped"
REFRESH = "asked for by --full-refresh"
NOT_YET = "not computed yet"
REAPPLIED = "its log, or how it is applied, changed"
_MOST = 3


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1204, "row"), counted(1, "new file")
    ('1,204 rows', '1 new file')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def outside(table: TableName) -> str:
    """Return that a table holds what no task made."""
    return f"{table} was changed outside Runnel"


def asked(days: Days) -> str:
    """Return that days are computed because somebody asked for them."""
    return f"asked for by backfill, {days}"


def known_since(result: Result, branch: str | None) -> str:
    """Return where a result comes from, with its branch where that is another than `branch`."""
    elsewhere = branch is not None and result.branch != branch
    return f"known since run {result.run}" + (f" on branch {result.branch}" if elsewhere else "")


def starting_from(result: Result, branch: str | None) -> str:
    """Return which result a table is computed on from, where it is another than the one that the table holds."""
    elsewhere = branch is not None and result.branch != branch
    where = f" on branch {result.branch}" if elsewhere else ", which was not published"
    return f"starting from the result of run {result.run}{where}"


def moved(table: TableName, movement: Movement) -> str:
    """Return how a table changed.

    >>> moved(TableName("ods", "orders"), Movement(rows_added=1204, files_added=2))
    'ods.orders gained 1,204 rows in 2 files'
    """
    if not movement.is_known:
        return f"the version of {table} last used is gone (retention)"
    # A rewritten file counts on both sides, so with files on both the numbers are bounds.
    most = "up to " if movement.files_added and movement.files_removed else ""
    told = []
    if movement.columns_changed:
        told.append("changed its columns")
    if movement.columns_added:
        noun = "column" if len(movement.columns_added) == 1 else "columns"
        told.append(f"gained the {noun} {listed(movement.columns_added)}")
    if movement.files_added:
        told.append(f"gained {most}{_in_files(movement.rows_added, movement.files_added)}")
    if movement.files_removed:
        told.append(f"lost {most}{_in_files(movement.rows_removed, movement.files_removed)}")
    if movement.deletes:
        told.append("had rows deleted in place")
    return f"{table} " + (_phrase(told) or "has a new version of the same rows")


def arrived(arrivals: Arrivals) -> str:
    """Return what a source has, of files or of whatever it tells.

    >>> arrived(Arrivals(new=2, changed=1, gone=1)), arrived(Arrivals(changed=1)), arrived(Arrivals(gone=2))
    ('2 new files, 1 changed, 1 gone', '1 changed file', '2 files gone')
    """
    if arrivals.told is not None:
        return arrivals.told
    first = ""
    told = []
    for number, before, after in (
        (arrivals.new, "new ", ""),
        (arrivals.changed, "changed ", ""),
        (arrivals.gone, "", " gone"),
    ):
        if number and not first:
            first = f"{number:,} {before}file{'' if number == 1 else 's'}{after}"
        elif number:
            told.append(f"{number:,} {(before + after).strip()}")
    return ", ".join([first, *told])


def renamed(number: int) -> str:
    """Return what is said of files whose rows are there already.

    >>> renamed(1)
    '1 file renamed'
    """
    return f"{number:,} file{'' if number == 1 else 's'} renamed"


def writing(left: Sequence[str]) -> str:
    """Return which files are left alone since they are still being written, or nothing.

    >>> writing(["a.csv"]), writing(["a.csv", "b.csv"]), writing([])
    ('a.csv is still being written', '2 files are still being written', '')
    """
    if len(left) > 1:
        return f"{len(left):,} files are still being written"
    return f"{left[0]} is still being written" if left else ""


def joined(texts: Sequence[str], noun: str = "input") -> str:
    """Return several reasons as one, the first few in full.

    >>> joined(["a moved", "b moved", "c moved", "d moved"])
    'a moved; b moved; c moved; and 1 more input changed'
    """
    rest = len(texts) - _MOST
    more = [f"and {rest} more {noun}{'' if rest == 1 else 's'} changed"] if rest > 0 else []
    return "; ".join([*texts[:_MOST], *more])


def _in_files(rows: int, files: int) -> str:
    return f"{counted(rows, 'row')} in {counted(files, 'file')}"


def _phrase(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
