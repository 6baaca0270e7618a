"""Check results of tables as values and as JSON, with the newest run of each table."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.lake.control.run_history import list_recent_runs
from runnel.lake.history.content_origin import find_origin

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.flow_state.runs import Run
    from runnel.lake.history.commits import Commit
    from runnel.lake.history.content_origin import ContentOrigin
    from runnel.lake.store import Store
    from runnel.names import TableName

_MAX_RUNS = 200  # newest runs


@dataclass(frozen=True)
class CheckFacts:
    """The result of a check: how many rows or values failed it."""

    check: str
    kind: str
    on_fail: str
    failed: int

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {**asdict(self), "state": "failed" if self.failed else "passed"}


@dataclass(frozen=True)
class LastRun:
    """The newest run that computed a table, or tried to."""

    run: str
    state: str
    at: str
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class TableChecks:
    """The check results of a table at a commit; `last` is the newest run that was to compute the table."""

    table: str
    at: str
    commit: str
    run: str | None
    made_at: str
    checks: tuple[CheckFacts, ...]
    last: LastRun | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "TableChecks":
        """Build the checks of a table from their JSON."""
        fields = {name: body[name] for name in ("table", "at", "commit", "run", "made_at")}
        checks = tuple(
            CheckFacts(check["check"], check["kind"], check["on_fail"], check["failed"]) for check in body["checks"]
        )
        return cls(**fields, checks=checks, last=LastRun(**body["last"]) if body["last"] else None)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        checks, last = [check.json() for check in self.checks], asdict(self.last) if self.last else None
        return {**vars(self), "checks": checks, "last": last}


def read_table_checks(store: "Store", table: "TableName", commit: "Commit") -> TableChecks:
    """Return the check results of a table at a commit; raise if there is no such table."""
    store.versions(commit, [table])

    def work(connection: "Connection") -> "tuple[ContentOrigin | None, list[Run]]":
        return find_origin(connection, commit, table), list_recent_runs(connection, _MAX_RUNS)

    table_origin, runs = store.db.read(work)
    if table_origin is None:
        raise store.unknown_table_error(table, commit)
    return _build_table_checks(table, commit, table_origin, _find_last_runs(runs, commit.branch))


def read_all_checks(store: "Store", commit: "Commit", *, after: str | None = None, limit: int) -> list[TableChecks]:
    """Return the check results of all tables at a commit that have any, by name, at most `limit`, after `after`."""
    names = [table for table in store.state(commit) if after is None or str(table) > after]

    def work(connection: "Connection") -> list[TableChecks]:
        results, last_runs = (
            list[TableChecks](),
            _find_last_runs(list_recent_runs(connection, _MAX_RUNS), commit.branch),
        )
        for table in names:
            table_origin = find_origin(connection, commit, table)
            if table_origin is not None and table_origin.origin_step.change.detail.get("checks"):
                results.append(_build_table_checks(table, commit, table_origin, last_runs))
            if len(results) == limit:
                break
        return results

    return store.db.read(work)


def _build_table_checks(
    table: "TableName", commit: "Commit", table_origin: "ContentOrigin", last_runs: Mapping[str, LastRun]
) -> TableChecks:
    origin_commit, detail = table_origin.origin_step.commit, table_origin.origin_step.change.detail
    checks = tuple(
        CheckFacts(check["check"], check["kind"], check["on_fail"], check["failed"])
        for check in detail.get("checks") or ()
    )
    run, made_at = detail.get("run") or origin_commit.run, detail.get("made_at") or origin_commit.at
    return TableChecks(str(table), commit.id, origin_commit.id, run, made_at, checks, last_runs.get(str(table)))


def _find_last_runs(runs: "list[Run]", branch: str) -> dict[str, LastRun]:
    """Return the newest run of each table on a branch."""
    last_runs: dict[str, LastRun] = {}
    for run in runs:
        for step in run.detail.get("steps") or () if run.branch == branch else ():
            if step["state"] not in ("skipped", "blocked") and step["table"] not in last_runs:
                ended_at = run.ended_at or run.started_at
                last_runs[step["table"]] = LastRun(run.id, step["state"], ended_at, step.get("error"))
    return last_runs
