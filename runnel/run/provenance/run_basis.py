"""What a run stands on: its code, the commit of its project, package versions and settings; for its provenance.

Git and the packages are asked in a thread of their own while Spark computes, so that no run waits for them.
"""

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

from runnel.declare.loading.compiled_files import tree_of
from runnel.declare.model.secret import Secret
from runnel.run.provenance.git import Git, git_of
from runnel.run.provenance.packages import packages_of
from runnel.run.provenance.project_code import code_of

if TYPE_CHECKING:
    from runnel.declare.model.flow import Flow, Task
    from runnel.declare.settings import Settings
    from runnel.lake.flow_state.code_store import Code
    from runnel.plan.steps import Step
    from runnel.run.checks.row_checks import Finding
    from runnel.run.run_context import Work
    from runnel.run.task.refresh_table import Outcome

MASK = "***"
SECRET, MOMENT = "$secret", "$time"  # what stands for a value that JSON does not have, or that must not be told
_LONGEST = 200
_PATIENCE_SECONDS = 10.0
_MOMENTS: dict[str, type[datetime] | type[date] | type[time]] = {"datetime": datetime, "date": date, "time": time}


class Basis:
    """What a run stands on. `told` waits for what is still being asked."""

    def __init__(self, flow: "Flow", settings: "Settings", others: Iterable[str] = ()) -> None:
        self.code: Code = code_of(flow, others)
        self._settings = settings
        self._git: Git | None = None
        self._packages: dict[str, str] = {}
        self._asking = threading.Thread(target=self._ask, args=(flow,), name="runnel basis", daemon=True)
        self._asking.start()

    def told(self) -> dict[str, Any]:
        """Return what holds for all tasks of the run."""
        self._asking.join(_PATIENCE_SECONDS)
        return {
            "code_id": self.code.id,
            "git": self._git,
            "packages": dict(self._packages),
            "conf": {name: self._masked(value) for name, value in self._settings.conf.items()},
        }

    @property
    def git(self) -> Git | None:
        """Return the commit of the project, if it is known by now."""
        return self._git

    def params(self, task: "Task") -> dict[str, str]:
        """Return the parameters in force of a task as people read them, without secrets."""
        return {name: self._masked(repr(value))[:_LONGEST] for name, value in task.params}

    def given(self, task: "Task") -> dict[str, Any]:
        """Return those parameters of a task that the settings give, so that they can be given again."""
        known = self._settings.params
        return {name: self._stored(known[name]) for name, _ in task.params if name in known}

    def _ask(self, flow: "Flow") -> None:
        with suppress(Exception):  # what is not known is left out: no run fails for it
            trees = [tree for file in flow.files if (tree := tree_of(file)) is not None]
            self._packages = packages_of(trees, _modules(self.code.files))
        with suppress(Exception):
            self._git = git_of(flow.root, self.code.files)

    def _masked(self, text: str) -> str:
        for secret in self._settings.secrets:
            text = text.replace(secret, MASK) if secret else text
        return text

    def _stored(self, value: Any) -> Any:
        if isinstance(value, Secret) or self._masked(repr(value)) != repr(value):
            return {SECRET: True}
        if isinstance(value, datetime | date | time):
            return {MOMENT: [type(value).__name__, value.isoformat()]}
        if isinstance(value, list):
            return [self._stored(item) for item in value]
        return {name: self._stored(item) for name, item in value.items()} if isinstance(value, dict) else value


def restored(given: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as they were given; a secret has the value that it has now, if any.

    >>> restored({"a": 1, "d": {"$time": ["date", "2026-01-02"]}, "s": {"$secret": True}}, {"s": "pw", "x": 2})
    {'a': 1, 'd': datetime.date(2026, 1, 2), 's': 'pw'}
    """
    is_secret = {name for name, value in given.items() if isinstance(value, dict) and set(value) == {SECRET}}
    return {
        name: now[name] if name in is_secret else _restored(value)
        for name, value in given.items()
        if name not in is_secret or name in now
    }


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {MOMENT}:
        kind, text = value[MOMENT]
        return _MOMENTS[kind].fromisoformat(text)
    return {name: _restored(item) for name, item in value.items()}


def made_by(work: "Work", task: "Task", step: "Step", made: "Outcome") -> dict[str, Any]:
    """Return what a result keeps about how it was made, beside its inputs."""
    basis = work.order.basis
    found = {
        "task": task.name,
        "place": str(task.place),
        "action": step.action,
        "reason": step.reason,
        "branch": work.order.branch,
        "author": work.store.author,
        "fingerprint": work.fingerprints(task).digest,
        "rows": made.rows,
        "set_aside": made.set_aside,
        "checks": _checked(work.findings.get(task.table, ())),
    }
    if basis is None:
        return found
    return {**found, "params": basis.params(task), "given": basis.given(task), **basis.told()}


def _checked(findings: "Iterable[Finding]") -> list[dict[str, Any]]:
    """Return how checks went. No example: rows that are erased must not live on here."""
    return [
        {"check": one.check.text, "on_fail": one.check.on_fail, "failed": one.failed, "kind": one.check.kind}
        for one in findings
    ]


def _modules(files: Iterable[str]) -> set[str]:
    """Return what the project's own modules may be called when they are imported."""
    names: set[str] = set()
    for file in files:
        if file.endswith(".py"):
            parts = file.removesuffix(".py").split("/")
            names |= {parts[0], *(parts[1:2] if parts[0] == "flows" else ())}
    return names
