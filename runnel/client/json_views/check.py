"""Checks of tables as values and as JSON: how those of a version went, and how the newest run did."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.lake.control.run_history import recent
from runnel.lake.history.content_origin import origin

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.flow_state.runs import Run
    from runnel.lake.history.commits import Commit
    from runnel.lake.history.content_origin import Origin
    from runnel.lake.store import Store
    from runnel.names import TableName

_LOOKED_AT = 200  # newest runs


@dataclass(frozen=True)
class CheckFacts:
    """How a check went: how many rows, or values, failed it."""

    check: str
    kind: str
    on_fail: str
    failed: int

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {**asdict(self), "state": "failed" if self.failed else "passed"}


@dataclass(frozen=True)
class Tried:
    """A run that made a table, or tried to."""

    run: str
    state: str
    at: str
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TableChecks:
    """The checks of the version that a table has at a commit; `last` is the newest run that was to make the table."""

    table: str
    at: str
    commit: str
    run: str | None
    made_at: str
    checks: tuple[CheckFacts, ...]
    last: Tried | None = None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "TableChecks":
        """Return what JSON tells."""
        told = {name: found[name] for name in ("table", "at", "commit", "run", "made_at")}
        checks = tuple(CheckFacts(one["check"], one["kind"], one["on_fail"], one["failed"]) for one in found["checks"])
        return cls(**told, checks=checks, last=Tried(**found["last"]) if found["last"] else None)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        checks, last = [one.json() for one in self.checks], asdict(self.last) if self.last else None
        return {**vars(self), "checks": checks, "last": last}


def table_checks(store: "Store", table: "TableName", commit: "Commit") -> TableChecks:
    """Return how the checks of a table at a commit went; raise where there is no such table."""
    store.versions(commit, [table])

    def work(connection: "Connection") -> "tuple[Origin | None, list[Run]]":
        return origin(connection, commit, table), recent(connection, _LOOKED_AT)

    found, runs = store.db.read(work)
    if found is None:
        raise store.unknown(table, commit)
    return _told(table, commit, found, _tries(runs, commit.branch))


def all_checks(store: "Store", commit: "Commit", *, after: str | None = None, limit: int) -> list[TableChecks]:
    """Return the checks of all tables at a commit that have any, by table; at most so many, after one."""
    names = [table for table in store.state(commit) if after is None or str(table) > after]

    def work(connection: "Connection") -> list[TableChecks]:
        found, tries = list[TableChecks](), _tries(recent(connection, _LOOKED_AT), commit.branch)
        for table in names:
            made = origin(connection, commit, table)
            if made is not None and made.made.change.detail.get("checks"):
                found.append(_told(table, commit, made, tries))
            if len(found) == limit:
                break
        return found

    return store.db.read(work)


def _told(table: "TableName", commit: "Commit", found: "Origin", tries: Mapping[str, Tried]) -> TableChecks:
    made, detail = found.made.commit, found.made.change.detail
    checks = tuple(
        CheckFacts(one["check"], one["kind"], one["on_fail"], one["failed"]) for one in detail.get("checks") or ()
    )
    run, at = detail.get("run") or made.run, detail.get("made_at") or made.at
    return TableChecks(str(table), commit.id, made.id, run, at, checks, tries.get(str(table)))


def _tries(runs: "list[Run]", branch: str) -> dict[str, Tried]:
    """Return the newest run of each table on a branch."""
    found: dict[str, Tried] = {}
    for run in runs:
        for step in run.detail.get("steps") or () if run.branch == branch else ():
            if step["state"] not in ("skipped", "blocked") and step["table"] not in found:
                at = run.ended_at or run.started_at
                found[step["table"]] = Tried(run.id, step["state"], at, step.get("error"))
    return found
