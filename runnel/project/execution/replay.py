"""Replay a commit: gather what it published and how, load its code into a folder of its own, and compute it there.

Sources are never read, nothing is published, and nothing is left behind but files that gc sweeps.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel import temp_dirs
from runnel.declare.loading.loader import load_flow
from runnel.declare.model.flow import QUARANTINE
from runnel.errors import RunnelError
from runnel.lake.catalog.database import moment
from runnel.lake.flow_state.code_store import load as load_code
from runnel.lake.flow_state.runs import run as run_of
from runnel.lake.history.commits import Change, Commit, changes_of
from runnel.lake.history.refs import readable
from runnel.names import TableName, new_run_id

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.run.verify.replay import Published, Replayed
    from runnel.spark.slot_pool import Loan

Told = Callable[[str], None]


@dataclass(frozen=True)
class Replay:
    """What the replay of a commit found. Without tables there was nothing to replay."""

    commit: Commit
    tables: "tuple[Replayed, ...]" = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def is_same(self) -> bool:
        """Tell whether everything came out as it was published."""
        return all(one.state == "same" for one in self.tables)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "commit": self.commit.id,
            "same": self.is_same,
            "tables": [one.json() for one in self.tables],
            "notes": list(self.notes),
        }


def replay_commit(lake: "Lake", ref: str, tell: Told | None = None) -> Replay:
    """Compute what the tasks of a commit made once more, with its code and from its inputs, and compare."""
    commit = readable(lake.store.commit(ref))
    found = published(lake, commit)
    if not found:
        return Replay(commit)
    done: dict[TableName, Replayed] = {}
    notes: list[str] = []
    for group in _grouped(found):
        replayed, more = _replay_group(lake, commit, group, tell or (lambda text: None))
        done |= {one.table: one for one in replayed}
        notes += [note for note in more if note not in notes]
    return Replay(commit, tuple(done[one.table] for one in found), tuple(notes))


def published(lake: "Lake", commit: Commit) -> "list[Published]":
    """Return the tables of a commit that tasks computed for it, each after those that it reads."""
    from runnel.run.verify.replay import Published

    changes = lake.store.db.read(lambda connection: changes_of(connection, commit.id))
    found = {}
    for change in changes:
        if change.after and change.content and _is_computed(lake, commit, change):
            used = change.detail.get("inputs", {})
            inputs = {TableName.stored(name): str(at["location"]) for name, at in used.items()}
            found[change.table] = Published(change.table, change.after, change.content, inputs, change.detail)
    order: list[TableName] = []

    def visit(table: TableName) -> None:
        if table in found and table not in order:
            for above in sorted(found[table].inputs):
                visit(above)
            order.append(table)

    for table in sorted(found):
        visit(table)
    return [found[table] for table in order]


def _is_computed(lake: "Lake", commit: Commit, change: Change) -> bool:
    """Tell whether a table was computed for a commit, by its run or by one that published nothing itself."""
    run = change.detail.get("run")
    if "key" not in change.detail or run is None:
        return False
    if run == commit.run:
        return True
    try:
        return lake.store.db.read(lambda connection: run_of(connection, run)).commit is None
    except RunnelError:
        return False


def _grouped(found: "Sequence[Published]") -> "list[list[Published]]":
    """Return tables that have the same code together."""
    groups: dict[str, list[Published]] = {}
    for one in found:
        groups.setdefault(str(one.detail.get("code_id")), []).append(one)
    return list(groups.values())


def _replay_group(
    lake: "Lake", commit: Commit, group: "Sequence[Published]", tell: Told
) -> "tuple[list[Replayed], list[str]]":
    from runnel.run.provenance.packages import packages_of
    from runnel.run.verify.replay import FAILED, Replayed, replay

    with _loaded(lake, commit, group) as flow:
        now = packages_of(())
        notes = [
            f"{name} was {version}, now it is {now[name]}"
            for name, version in group[0].detail.get("packages", {}).items()
            if name in now and now[name] != version
        ]
        done = []
        with _lent(lake, commit, group) as loan:
            for one in group:
                tell(f"{one.table}: replaying")
                task = flow.tasks.get(one.table)
                if task is None:
                    what = f"the code of commit {commit.id[:8]} has no task for `{one.table}`"
                    done.append(Replayed(one.table, FAILED, error=RunnelError("REPLAY_TASK_UNKNOWN", what)))
                    continue
                done.append(replay(_context(lake, loan, one), task, one, flow.root))
    return done, notes


def _context(lake: "Lake", loan: "Loan", one: "Published") -> Any:
    from runnel.run.task_context import Context

    made_at = moment(one.detail["made_at"])
    return Context(lake.store, loan.slot, loan.session, f"replay-{new_run_id(made_at)}", made_at)


@contextmanager
def _loaded(lake: "Lake", commit: Commit, group: "Sequence[Published]") -> "Iterator[Flow]":
    """Yield the flow that a commit's code declares, with the parameters that it was run with."""
    from runnel.run.provenance.run_basis import restored

    code_id = group[0].detail.get("code_id")
    code = lake.store.db.read(lambda connection: load_code(connection, code_id)) if code_id else None
    if code is None:
        what = (
            f"the code of commit {commit.id[:8]} was not kept"
            if code_id is None
            else f"the code {code_id[:12]} is gone"
        )
        raise RunnelError(
            "REPLAY_NO_CODE", what, fix="commits of an older Runnel, or past their retention, can't be replayed"
        )
    given: dict[str, Any] = {name: value for one in group for name, value in one.detail.get("given", {}).items()}
    finders = list(sys.meta_path)
    with temp_dirs.folder("replay") as folder:
        code.write(Path(folder))
        settings = replace(
            lake.settings, root=Path(folder), params=restored(given, lake.settings.params), param_origins={}
        )
        try:
            yield _flow(lake, commit, settings)
        finally:
            sys.meta_path[:] = finders  # imports that run later belong to the project, not to this folder


def _flow(lake: "Lake", commit: Commit, settings: Any) -> "Flow":
    try:
        return load_flow(settings, start_spark=lambda: lake.spark)
    except RunnelError as error:
        what = f"the code of commit {commit.id[:8]} can't be loaded any more: {error.what}"
        fix = "it may need packages, files or variables that are not there now"
        raise RunnelError("REPLAY_CODE", what, at=error.at, fix=fix) from error


@contextmanager
def _lent(lake: "Lake", commit: Commit, group: "Sequence[Published]") -> "Iterator[Loan]":
    """Lend a slot whose session has the settings of SQL that the run had."""
    from runnel.run.run_context import session_conf
    from runnel.spark.slot_pool import lender

    layers = {QUARANTINE, *(one.table.layer for one in group), *(table.layer for one in group for table in one.inputs)}
    conf: Mapping[str, str] = group[0].detail.get("conf", {})
    with lender(lake.spark, lake.store, "r", session_conf(lake.spark)).lend(commit, {}, layers) as loan:
        wanted = {name: value for name, value in conf.items() if loan.session.conf.isModifiable(name)}
        before = {name: loan.session.conf.get(name, None) for name in wanted}
        for name, value in wanted.items():
            loan.session.conf.set(name, value)
        try:
            yield loan
        finally:
            for name, old in before.items():
                loan.session.conf.unset(name) if old is None else loan.session.conf.set(name, old)
