"""Replay a commit: find what it published and how, load its code into a temporary folder, and compute it there.

Sources are never read, nothing is published, and only files that gc deletes are left behind.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel import temp_dirs
from runnel.declare.loading.loader import load_flow
from runnel.declare.model.flow import QUARANTINE_LAYER
from runnel.errors import RunnelError
from runnel.lake.catalog.database import parse_time
from runnel.lake.flow_state.code_store import load_code
from runnel.lake.flow_state.runs import find_run as run_of
from runnel.lake.history.commits import Commit, CommitChange, read_changes
from runnel.lake.history.refs import check_retained
from runnel.names import TableName, new_run_id

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.run.verify.replay import PublishedTable, TableReplay
    from runnel.spark.slot_pool import SlotLease

ReplayReporter = Callable[[str], None]


@dataclass(frozen=True)
class CommitReplay:
    """The result of replaying a commit. Without tables there was nothing to replay."""

    commit: Commit
    tables: "tuple[TableReplay, ...]" = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def is_same(self) -> bool:
        """Return whether every table was computed as it was published."""
        return all(replayed.state == "same" for replayed in self.tables)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "commit": self.commit.id,
            "same": self.is_same,
            "tables": [replayed.json() for replayed in self.tables],
            "notes": list(self.notes),
        }


def replay_commit(lake: "Lake", ref: str, report: ReplayReporter | None = None) -> CommitReplay:
    """Recompute the tables that tasks published in a commit, with its code and inputs, and compare."""
    commit = check_retained(lake.store.commit(ref))
    tables = find_published_tables(lake, commit)
    if not tables:
        return CommitReplay(commit)
    replayed_by_table: dict[TableName, TableReplay] = {}
    notes: list[str] = []
    for group in _group_by_code(tables):
        replayed, group_notes = _replay_group(lake, commit, group, report or (lambda _: None))
        replayed_by_table |= {item.table: item for item in replayed}
        notes += [note for note in group_notes if note not in notes]
    return CommitReplay(commit, tuple(replayed_by_table[item.table] for item in tables), tuple(notes))


def find_published_tables(lake: "Lake", commit: Commit) -> "list[PublishedTable]":
    """Return the tables that tasks computed for a commit, each after the tables that it reads."""
    from runnel.run.verify.replay import PublishedTable

    changes = lake.store.db.read(lambda connection: read_changes(connection, commit.id))
    tables = {}
    for change in changes:
        if change.after and change.content and _is_computed(lake, commit, change):
            input_versions = change.detail.get("inputs", {})
            inputs = {
                TableName.parse_unchecked(name): str(version["location"]) for name, version in input_versions.items()
            }
            tables[change.table] = PublishedTable(change.table, change.after, change.content, inputs, change.detail)
    order: list[TableName] = []

    def visit(table: TableName) -> None:
        if table in tables and table not in order:
            for input_table in sorted(tables[table].inputs):
                visit(input_table)
            order.append(table)

    for table in sorted(tables):
        visit(table)
    return [tables[table] for table in order]


def _is_computed(lake: "Lake", commit: Commit, change: CommitChange) -> bool:
    """Return whether a table was computed for a commit, by its run or by a run that published nothing itself."""
    run = change.detail.get("run")
    if "key" not in change.detail or run is None:
        return False
    if run == commit.run:
        return True
    try:
        return lake.store.db.read(lambda connection: run_of(connection, run)).commit is None
    except RunnelError:
        return False


def _group_by_code(tables: "Sequence[PublishedTable]") -> "list[list[PublishedTable]]":
    """Group tables that were computed by the same version of the code."""
    groups: dict[str, list[PublishedTable]] = {}
    for published_table in tables:
        groups.setdefault(str(published_table.detail.get("code_id")), []).append(published_table)
    return list(groups.values())


def _replay_group(
    lake: "Lake", commit: Commit, group: "Sequence[PublishedTable]", report: ReplayReporter
) -> "tuple[list[TableReplay], list[str]]":
    from runnel.run.provenance.packages import read_package_versions
    from runnel.run.verify.replay import FAILED, TableReplay, replay_table

    with _load_commit_flow(lake, commit, group) as flow:
        current_packages = read_package_versions(())
        notes = [
            f"{name} was {version}, now it is {current_packages[name]}"
            for name, version in group[0].detail.get("packages", {}).items()
            if name in current_packages and current_packages[name] != version
        ]
        results = []
        with _lend_slot(lake, commit, group) as loan:
            for published_table in group:
                report(f"{published_table.table}: replaying")
                task = flow.tasks.get(published_table.table)
                if task is None:
                    what = f"the code of commit {commit.id[:8]} has no task for `{published_table.table}`"
                    results.append(
                        TableReplay(published_table.table, FAILED, error=RunnelError("REPLAY_TASK_UNKNOWN", what))
                    )
                    continue
                results.append(
                    replay_table(_build_context(lake, loan, published_table), task, published_table, flow.root)
                )
    return results, notes


def _build_context(lake: "Lake", loan: "SlotLease", published_table: "PublishedTable") -> Any:
    from runnel.run.task_context import TaskContext

    made_at = parse_time(published_table.detail["made_at"])
    return TaskContext(lake.store, loan.slot, loan.session, f"replay-{new_run_id(made_at)}", made_at)


@contextmanager
def _load_commit_flow(lake: "Lake", commit: Commit, group: "Sequence[PublishedTable]") -> "Iterator[Flow]":
    """Yield the flow of a commit's code, with the parameters that it was run with."""
    from runnel.run.provenance.run_basis import restore_params

    code_id = group[0].detail.get("code_id")
    code = lake.store.db.read(lambda connection: load_code(connection, code_id)) if code_id else None
    if code is None:
        what = (
            f"the code of commit {commit.id[:8]} was not stored"
            if code_id is None
            else f"the code {code_id[:12]} is gone"
        )
        raise RunnelError(
            "REPLAY_NO_CODE", what, fix="commits of an older Runnel, or past their retention, can't be replayed"
        )
    parameters: dict[str, Any] = {
        name: value for published_table in group for name, value in published_table.detail.get("given", {}).items()
    }
    finders = list(sys.meta_path)
    with temp_dirs.create_scoped("replay") as folder:
        code.write(Path(folder))
        settings = replace(
            lake.settings, root=Path(folder), params=restore_params(parameters, lake.settings.params), param_origins={}
        )
        try:
            yield _load_flow(lake, commit, settings)
        finally:
            sys.meta_path[:] = finders  # later imports must find the project, not this folder


def _load_flow(lake: "Lake", commit: Commit, settings: Any) -> "Flow":
    try:
        return load_flow(settings, start_spark=lambda: lake.spark)
    except RunnelError as error:
        what = f"the code of commit {commit.id[:8]} can't be loaded any more: {error.what}"
        fix = "it may need packages, files or variables that are not there now"
        raise RunnelError("REPLAY_CODE", what, at=error.at, fix=fix) from error


@contextmanager
def _lend_slot(lake: "Lake", commit: Commit, group: "Sequence[PublishedTable]") -> "Iterator[SlotLease]":
    """Lend a slot whose session has the SQL settings of the original run."""
    from runnel.run.run_context import session_conf
    from runnel.spark.slot_pool import get_slot_pool

    layers = {
        QUARANTINE_LAYER,
        *(published_table.table.layer for published_table in group),
        *(table.layer for published_table in group for table in published_table.inputs),
    }
    conf: Mapping[str, str] = group[0].detail.get("conf", {})
    with get_slot_pool(lake.spark, lake.store, "r", session_conf(lake.spark)).acquire(commit, {}, layers) as loan:
        modifiable = {name: value for name, value in conf.items() if loan.session.conf.isModifiable(name)}
        previous_conf = {name: loan.session.conf.get(name, None) for name in modifiable}
        for name, value in modifiable.items():
            loan.session.conf.set(name, value)
        try:
            yield loan
        finally:
            for name, previous_value in previous_conf.items():
                loan.session.conf.unset(name) if previous_value is None else loan.session.conf.set(name, previous_value)
