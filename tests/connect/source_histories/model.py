"""What the documentation promises of a source of files, in memory: its rows, its quarantine and its position. Pure.

A file keeps its number when it is renamed or changed, and when it vanishes and comes back. The table holds the rows of
one reading of each number; a revert changes which reading that is, and never what counts as read. A file that two
branches read for the first time has the same number on both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count

Row = tuple[int, int, int]
BadRow = tuple[str, str]  # the file that it was read from, and its text
Number = tuple[str, int]  # the path that a file was first read from, and how many had been read from it before


@dataclass(frozen=True)
class Contents:
    """What a file holds: rows that can be read, and lines that can't."""

    good: tuple[Row, ...] = ()
    bad: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the file's text."""
        lines = [",".join(map(str, row)) for row in self.good]
        return "\n".join(["id,ts,amount", *lines, *self.bad]) + "\n"


@dataclass(frozen=True)
class Entry:
    """What was last read at a path, and the numbers of the files whose rows go when it changes."""

    numbers: tuple["Number", ...]
    contents: Contents
    is_removed: bool = False


@dataclass(frozen=True)
class Holding:
    """What the table and its quarantine have of one file."""

    good: tuple[Row, ...] = ()
    bad: tuple[BadRow, ...] = ()


@dataclass
class State:
    """A version of the table, its quarantine and the position."""

    exists: bool = False
    holdings: dict[Number, Holding] = field(default_factory=dict)
    position: dict[str, Entry] = field(default_factory=dict)

    def copy(self) -> "State":
        """Return a state that can be changed by itself."""
        return State(self.exists, dict(self.holdings), dict(self.position))

    def rows(self) -> list[Row]:
        """Return the rows of the table, sorted."""
        return sorted(row for holding in self.holdings.values() for row in holding.good)

    def quarantined(self) -> list[BadRow]:
        """Return the rows of the quarantine, sorted."""
        return sorted(row for holding in self.holdings.values() for row in holding.bad)

    def holding(self, number: Number) -> Holding:
        """Return what is there of a file."""
        return self.holdings.get(number, Holding())


def fresh_number(path: str, *positions: Mapping[str, Entry]) -> Number:
    """Return a number that no file of some positions has."""
    used = {number for position in positions for entry in position.values() for number in entry.numbers}
    return next((path, place) for place in count() if (path, place) not in used)


def after_run(state: State, folder: Mapping[str, Contents], *, deletes: bool) -> State:
    """Return the state after a run that finds these files."""
    result = state.copy()
    result.exists = True
    known = state.position if state.exists else {}
    live = {path: entry for path, entry in known.items() if not entry.is_removed}
    differing = [path for path in sorted(folder) if path not in live or live[path].contents != folder[path]]
    vanished = [path for path in sorted(live) if path not in folder]
    free = {path: live[path] for path in sorted({*vanished, *(path for path in differing if path in live)})}
    renamed: dict[str, str] = {}
    for path in differing:
        former = next((other for other, entry in free.items() if entry.contents == folder[path]), None)
        if former is not None:
            renamed[path] = former
            del free[former]
    if not state.exists:
        forgotten = {path: Entry((), entry.contents, is_removed=True) for path, entry in state.position.items()}
        result.holdings, result.position = {}, forgotten
    for former in renamed.values():
        result.position[former] = Entry((), live[former].contents, is_removed=True)
    for path, former in renamed.items():
        result.position[path] = live[former]
        if path in free:  # it was overwritten by the renamed file
            _clear(result, free.pop(path))
    for path in differing:
        if path not in renamed:
            entry = free.pop(path, None) or _returning(path, folder, known, live, result)
            result.position[path] = Entry(entry.numbers, folder[path])
            _clear(result, entry)
            bad = tuple((path, text) for text in folder[path].bad)
            result.holdings[entry.numbers[0]] = Holding(folder[path].good, bad)
    for path, entry in free.items():
        if deletes:
            _clear(result, entry)
            result.position[path] = replace(entry, is_removed=True)
    return result


def _returning(
    path: str,
    folder: Mapping[str, Contents],
    known: Mapping[str, Entry],
    live: Mapping[str, Entry],
    result: State,
) -> Entry:
    """Return the entry of a file that was removed and is there again, also under another name, or a new one."""
    own = known.get(path)
    taken = {number for entry in result.position.values() if not entry.is_removed for number in entry.numbers}
    if path not in live and own is not None and own.numbers and not taken.intersection(own.numbers):
        return own
    for other, entry in sorted(known.items()):
        is_free = entry.is_removed and other not in folder and bool(result.position[other].numbers)
        if path not in live and is_free and entry.contents == folder[path]:
            result.position[other] = replace(entry, numbers=())
            return entry
    return Entry((fresh_number(path, known, result.position),), folder[path])


def _clear(state: State, entry: Entry) -> None:
    for number in entry.numbers:
        state.holdings.pop(number, None)


def after_revert(tip: State, before: State, undone: State) -> State | None:
    """Return the state after a commit was undone; None where a file of it has been read again since."""
    result = tip.copy()
    everything = {*before.holdings, *undone.holdings}
    touched = [number for number in everything if before.holding(number) != undone.holding(number)]
    for number in touched:
        if tip.holding(number) not in (undone.holding(number), before.holding(number)):
            return None
        result.holdings[number] = before.holding(number)
    owned = {number for entry in result.position.values() for number in entry.numbers}
    for path, entry in before.position.items():
        for number in entry.numbers:
            if number in touched and number not in owned and before.holding(number) != Holding():
                there = result.position[path]
                result.position[path] = replace(there, numbers=(*there.numbers, number))
    return result


def after_merge(base: State, ours: State, theirs: State, *, with_position: bool) -> State | None:
    """Return our state after a merge of theirs; None where both sides have other rows of one file than before.

    Where our table has all that theirs has, the position stays as well.
    """
    result = ours.copy()
    result.exists = ours.exists or theirs.exists
    for number in {*base.holdings, *ours.holdings, *theirs.holdings}:
        before, our, their = (state.holding(number) for state in (base, ours, theirs))
        if before not in (our, their) and our != their and not _read_alike(number, base, ours, theirs):
            return None
        result.holdings[number] = their if our == before else our
    for path, entry in theirs.position.items() if with_position else ():
        if entry != base.position.get(path) and _read_at(ours, path) == _read_at(base, path):
            result.position[path] = entry
    return result


def _read_alike(number: Number, base: State, ours: State, theirs: State) -> bool:
    """Tell whether both sides read the same contents of a file, of which an erasure may have taken rows since."""
    paths = [path for path, entry in ours.position.items() if number in entry.numbers]
    return any(_read_at(ours, path) == _read_at(theirs, path) != _read_at(base, path) for path in paths)


def _read_at(state: State, path: str) -> Contents | None:
    """Return what was read at a path; None where the table has no rows of it."""
    entry = state.position.get(path)
    return None if entry is None or entry.is_removed else entry.contents


def after_rewind(tip: State, target: State) -> State:
    """Return the state after a source was taken back: what was read since counts as never read."""
    position = {path: Entry((), entry.contents, is_removed=True) for path, entry in tip.position.items()}
    if not target.exists:
        return State(False, {}, position)
    return State(True, dict(target.holdings), position | target.position)


def after_release(tip: State, path: str, corrected: Row) -> State | None:
    """Return the state after the bad rows of a file were corrected; None where they are of no file or of several."""
    numbers = [number for number, holding in tip.holdings.items() if any(file == path for file, _ in holding.bad)]
    if len(numbers) != 1:
        return None
    result = tip.copy()
    holding = result.holding(numbers[0])
    left = tuple(row for row in holding.bad if row[0] != path)
    result.holdings[numbers[0]] = Holding((*holding.good, corrected), left)
    return result


def erase(state: State, row_id: int) -> None:
    """Take rows out of a state, as an erasure does in every version."""
    for number, holding in state.holdings.items():
        state.holdings[number] = replace(holding, good=tuple(row for row in holding.good if row[0] != row_id))


def applied(rows: list[Row]) -> list[Row]:
    """Return what follows from a log of changes: the last row of each key."""
    return sorted({row[0]: row for row in sorted(rows)}.values())
