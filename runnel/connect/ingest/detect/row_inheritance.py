"""Tell which files of a source are new, changed or renamed, and whose rows each of them inherits. Pure.

A file has owners: how the names of its data files start, in its table and in its quarantine. It keeps them when it is
renamed, changed, or removed and put back, so that its rows are found whatever a revert brought back meanwhile. No two
files have the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

from runnel.connect.ingest.detect.file_changes import Arrival, Found
from runnel.lake.flow_state.ingest_position import Seen
from runnel.lake.iceberg.data_file_owners import prefix, prefix_of


def sort_arrivals(
    differing: Iterable[Arrival], known: Mapping[str, Seen], vanished: Iterable[Seen], removed: str
) -> Found:
    """Return which rows come, go and move.

    Rows whose file vanished or got other contents are free: a file elsewhere with the contents that they were read
    from takes them over, so that neither a renamed file nor rotated logs are read again.
    """
    arrivals = list(differing)
    free = {old.path: old for old in vanished}
    leaving = set(free) if removed == "delete" else set()  # whose rows go, unless they are taken over
    for arrival in arrivals:
        old = known.get(arrival.path)
        if old is not None and not old.is_gone:
            free[arrival.path] = old
    taken = _taken_over(arrivals, free)
    heirs = _Heirs(known, taken.values(), arrivals)
    new: list[Arrival] = []
    changed: list[Arrival] = []
    renamed: list[tuple[Seen, Arrival]] = []
    for arrival in arrivals:
        old = taken.get(arrival.path)
        if old is not None and old.identity == arrival.identity:
            renamed.append((old, replace(arrival, owners=old.owned)))
        elif old is not None:
            changed.append(_inherited(arrival, old))
        elif arrival.path in free:
            changed.append(_inherited(arrival, free.pop(arrival.path)))
        elif arrival.path in known and not known[arrival.path].is_gone:  # its own rows went with another file
            changed.append(heirs.newcomer(arrival))
        else:
            new.append(heirs.returning(arrival))
    # What nobody took over: rows of a file that has other contents now go by themselves.
    over = {arrival.path for _, arrival in renamed} | {arrival.path for arrival in changed}
    left = tuple(old for path, old in free.items() if path in leaving or path in over)
    return Found(tuple(new), tuple(changed), left, tuple(renamed))


def _taken_over(arrivals: Iterable[Arrival], free: dict[str, Seen]) -> dict[str, Seen]:
    """Return, and take out of `free`, the rows that each file takes over: its own if they are among them."""
    by_sum: dict[str, list[Seen]] = {}
    for _, old in sorted(free.items()):
        by_sum.setdefault(old.sha256, []).append(old)
    taken: dict[str, Seen] = {}
    for arrival in arrivals:
        equal = by_sum.get(arrival.sha256, [])
        if equal:
            own = next((place for place, old in enumerate(equal) if old.path == arrival.path), 0)
            taken[arrival.path] = equal.pop(own)
            del free[taken[arrival.path].path]
    return taken


def _inherited(arrival: Arrival, old: Seen) -> Arrival:
    return replace(arrival, replaces=old, owners=old.owned)


class _Heirs:
    """Finds owners for files that are not in the place of one that is there."""

    def __init__(self, known: Mapping[str, Seen], taken: Iterable[Seen], arrivals: Iterable[Arrival]) -> None:
        self._known = known
        self._moved = list(taken)
        self._coming = {arrival.path for arrival in arrivals}
        self._used: dict[str, str] | None = None  # who has an owner that may not be that of its path
        self._removed: dict[str, list[Seen]] | None = None

    def returning(self, arrival: Arrival) -> Arrival:
        """Return a file with what it was before it was removed, at its path or, with equal contents, at another."""
        own = self._known.get(arrival.path)
        if own is not None and (owners := self._free(own)):
            return replace(arrival, replaces=own, owners=owners)
        equal = self._removed_by_sum().get(arrival.sha256, [])
        return _inherited(arrival, equal.pop(0)) if equal else self.newcomer(arrival)

    def newcomer(self, arrival: Arrival) -> Arrival:
        """Return a file with an owner that no other has."""
        users = self._users()
        names = (arrival.path if number == 0 else f"{arrival.path}\n{number}" for number in count())
        owner = next(found for name in names if (found := prefix(name)) not in users)
        users[owner] = arrival.path
        return replace(arrival, owners=(owner,))

    def _users(self) -> dict[str, str]:
        if self._used is None:
            used: dict[str, str] = {}
            for path, old in self._known.items():
                found = old.owners if old.owners is not None else filter(None, map(prefix_of, old.files))
                for owner in found:
                    if not old.is_gone or owner not in used:
                        used[owner] = path
            used |= {owner: "" for old in self._moved for owner in old.owned}
            self._used = used
        return self._used

    def _removed_by_sum(self) -> dict[str, list[Seen]]:
        """Return the removed files that may come back under another name."""
        if self._removed is None:
            self._removed = {}
            away = [old for path, old in self._known.items() if old.is_gone and path not in self._coming]
            for old in sorted(away, key=lambda old: old.path):
                if owners := self._free(old):
                    self._removed.setdefault(old.sha256, []).append(replace(old, owners=owners))
        return self._removed

    def _free(self, old: Seen) -> tuple[str, ...]:
        """Return the owners of a removed file that no other file has got since."""
        users = self._users()
        return tuple(owner for owner in old.owned if users.get(owner, old.path) == old.path)
