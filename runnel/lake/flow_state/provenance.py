"""Why a table holds what it holds: who made it, from which versions, with which code. Reads only."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection

from runnel.errors import Broken
from runnel.lake.flow_state import results
from runnel.lake.flow_state.ingest_position import Seen
from runnel.lake.flow_state.ingest_positions import seen
from runnel.lake.history.commits import Commit, Version
from runnel.lake.history.content_origin import Origin, Step, origin, published
from runnel.lake.iceberg.table_size import size_of
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.plan.facts import Result

MOST_FILES = 20


@dataclass(frozen=True)
class Input:
    """A version that a result was made from. `commit` published it; without `rows` it is gone or was never counted."""

    table: TableName
    location: str
    commit: Commit | None
    rows: int | None
    is_gone: bool = False


@dataclass(frozen=True)
class File:
    """A file that a table's rows came from."""

    name: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Why:
    """Why a table holds what it holds at a commit.

    `kind` says what made it: task, source, load, put, quarantine, merge, revert, outside or write. `detail` is what
    was recorded with it. `again` is a later result with the same rows.
    """

    table: TableName
    at: Commit
    version: Version
    kind: str
    made: Step
    passed: tuple[Step, ...]
    rows: int | None
    inputs: tuple[Input, ...] = ()
    files: tuple[File, ...] = ()
    files_total: int = 0
    again: "Result | None" = None
    run_state: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def run(self) -> str | None:
        """Return the run that made it."""
        return self.detail.get("run") or self.made.commit.run

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        made, told = self.made.commit, self.detail
        known = ("task", "place", "action", "reason", "git", "params", "packages", "conf", "checks", "fingerprint")
        return {
            "table": str(self.table),
            "at": self.at.id,
            "location": self.version.location,
            "content": self.version.content,
            "kind": self.kind,
            "rows": self.rows,
            "commit": made.id,
            "branch": made.branch,
            "message": made.message,
            "author": told.get("author") or made.author,
            "made_at": told.get("made_at") or made.at,
            "run": self.run,
            "state": self.run_state,
            "code": told.get("code_id"),
            "key": told.get("key"),
            **{name: told.get(name) for name in known},
            "inputs": [_input_json(one) for one in self.inputs],
            "files": [asdict(one) for one in self.files],
            "files_total": self.files_total,
            "passed": [{"commit": one.commit.id, "kind": one.commit.kind, "at": one.commit.at} for one in self.passed],
            "again": {"run": self.again.run, "made_at": self.again.made_at} if self.again else None,
        }


def why(store: "Store", table: TableName, at: str = "main") -> Why:
    """Return why a table holds what it holds at a ref."""
    commit = store.commit(at)
    version = store.versions(commit, [table])[table]
    found = store.db.read(lambda connection: origin(connection, commit, table))
    if found is None:
        raise store.unknown(table, commit)
    kind, detail = kind_of(found), found.made.change.detail
    files, total = _files(store, kind, found, commit, table)
    return Why(
        table,
        commit,
        version,
        kind,
        found.made,
        found.passed,
        _rows(store, version.location)[0],
        _inputs(store, found),
        files,
        total,
        _again(store, found, version) if found.is_task else None,
        store.db.read(lambda connection: _state(connection, detail.get("run") or found.made.commit.run)),
        detail,
    )


def kind_of(found: Origin) -> str:
    """Return what made a table's content."""
    commit, detail = found.made.commit, found.made.change.detail
    if found.is_task:
        return "task"
    if "of" in detail:
        return "quarantine"
    if detail.get("outside"):
        return "outside"
    if "load" in detail:
        return "load"
    if commit.kind in ("merge", "revert", "erase"):
        return commit.kind
    if commit.run is not None:
        return "source"
    return "put" if commit.message.startswith("put ") else "write"


def _inputs(store: "Store", found: Origin) -> tuple[Input, ...]:
    used: Mapping[str, Mapping[str, str]] = found.made.change.detail.get("inputs", {})
    told = []
    for name, at in used.items():
        table = TableName.stored(name)
        step = store.db.read(
            lambda connection, table=table, at=at: published(connection, found.made.commit, table, at["location"])  # type: ignore[misc]
        )
        rows, is_gone = _rows(store, at["location"])
        told.append(Input(table, at["location"], step.commit if step else None, rows, is_gone))
    return tuple(told)


def _rows(store: "Store", location: str) -> tuple[int | None, bool]:
    """Return how many rows a version has, and whether it is gone."""
    from runnel.lake.iceberg.table_metadata import load

    try:
        return size_of(load(store, location)).rows, False
    except Broken:
        return None, True


def _files(store: "Store", kind: str, found: Origin, at: Commit, table: TableName) -> tuple[tuple[File, ...], int]:
    """Return the first files that a table's rows came from, and how many there are."""
    if kind == "load":
        told = found.made.change.detail["load"]
        named = [File(one["name"], one.get("bytes")) for one in told["files"]]
        return tuple(named[:MOST_FILES]), len(named) + int(told.get("more_files", 0))
    if kind != "source":
        return (), 0
    given: list[Seen] = sorted(seen(store.db, at, table).values(), key=lambda one: one.path)
    return tuple(File(one.path, one.size, one.sha256) for one in given[:MOST_FILES]), len(given)


def _again(store: "Store", found: Origin, version: Version) -> "Result | None":
    """Return the newest result with these rows, where another run than the one that made them found them again."""
    newest = results.made(store.db, found.made.change.table, version.content)
    return newest if newest is not None and newest.run != found.made.change.detail.get("run") else None


def _state(connection: Connection, run: str | None) -> str | None:
    from runnel.errors import Mistake
    from runnel.lake.flow_state.runs import run as run_of

    try:
        return run_of(connection, run).state if run else None
    except Mistake:
        return None


def _input_json(one: Input) -> dict[str, Any]:
    return {
        "table": str(one.table),
        "location": one.location,
        "commit": one.commit.id if one.commit else None,
        "at": one.commit.at if one.commit else None,
        "rows": one.rows,
        "gone": one.is_gone,
    }
