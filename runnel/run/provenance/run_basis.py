"""Collect what the provenance of a run records: its code, git commit, package versions and settings.

Git and the packages are read in a thread of their own while Spark computes, so that no run waits for them.
"""

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

from runnel.declare.loading.compiled_files import cached_tree
from runnel.declare.model.secret import Secret
from runnel.model.secret_mask import MASK, SecretMask, mask_settings
from runnel.run.provenance.git import GitState, read_git_state
from runnel.run.provenance.packages import read_package_versions
from runnel.run.provenance.project_code import collect_code

if TYPE_CHECKING:
    from runnel.declare.model.flow import Flow, Task
    from runnel.declare.settings import Settings
    from runnel.lake.flow_state.code_store import ProjectCode
    from runnel.plan.steps import PlanStep
    from runnel.run.checks.row_checks import CheckFinding
    from runnel.run.run_context import RunContext
    from runnel.run.task.refresh_table import RefreshResult

SECRET, MOMENT = "$secret", "$time"  # stand for values that JSON lacks, or that must stay secret
_LONGEST = 200
_PATIENCE_SECONDS = 10.0
_MOMENTS: dict[str, type[datetime] | type[date] | type[time]] = {"datetime": datetime, "date": date, "time": time}


class RunBasis:
    """Collect code, git commit, packages and settings of a run. `describe_run` waits for the lookups."""

    def __init__(self, flow: "Flow", settings: "Settings", other_files: Iterable[str] = ()) -> None:
        self.code: ProjectCode = collect_code(flow, other_files)
        self.mask = SecretMask(settings.secrets)
        self._settings = settings
        self._git: GitState | None = None
        self._packages: dict[str, str] = {}
        self._lookup_thread = threading.Thread(target=self._look_up, args=(flow,), name="runnel basis", daemon=True)
        self._lookup_thread.start()

    def describe_run(self) -> dict[str, Any]:
        """Return the provenance that all tasks of the run share."""
        self._lookup_thread.join(_PATIENCE_SECONDS)
        return {
            "code_id": self.code.id,
            "git": self._git,
            "packages": dict(self._packages),
            "conf": {name: self._mask_secrets(value) for name, value in mask_settings(self._settings.conf).items()},
        }

    @property
    def git(self) -> GitState | None:
        """Return the git commit of the project, if it was read by now."""
        return self._git

    def params(self, task: "Task") -> dict[str, str]:
        """Return the parameters of a task as text, without secrets."""
        return {name: self._mask_secrets(repr(value))[:_LONGEST] for name, value in task.params}

    def encode_params(self, task: "Task") -> dict[str, Any]:
        """Return the parameters of a task that come from the settings, as JSON that `restore_params` reads."""
        settings_params = self._settings.params
        return {name: self._encode_value(settings_params[name]) for name, _ in task.params if name in settings_params}

    def _look_up(self, flow: "Flow") -> None:
        with suppress(Exception):  # a failed lookup is left out: no run fails for it
            trees = [tree for file in flow.files if (tree := cached_tree(file)) is not None]
            self._packages = read_package_versions(trees, _list_project_modules(self.code.files))
        with suppress(Exception):
            self._git = read_git_state(flow.root, self.code.files)

    def _mask_secrets(self, text: str) -> str:
        for secret in self._settings.secrets:
            text = text.replace(secret, MASK) if secret else text
        return text

    def _encode_value(self, value: Any) -> Any:
        if isinstance(value, Secret) or self._mask_secrets(repr(value)) != repr(value):
            return {SECRET: True}
        if isinstance(value, datetime | date | time):
            return {MOMENT: [type(value).__name__, value.isoformat()]}
        if isinstance(value, list):
            return [self._encode_value(item) for item in value]
        return {name: self._encode_value(item) for name, item in value.items()} if isinstance(value, dict) else value


def restore_params(stored_params: Mapping[str, Any], current_params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that `encode_params` stored; a secret has its current value, if any.

    >>> restore_params({"a": 1, "d": {"$time": ["date", "2026-01-02"]}, "s": {"$secret": True}}, {"s": "pw", "x": 2})
    {'a': 1, 'd': datetime.date(2026, 1, 2), 's': 'pw'}
    """
    secret_names = {name for name, value in stored_params.items() if isinstance(value, dict) and set(value) == {SECRET}}
    return {
        name: current_params[name] if name in secret_names else _restore_value(value)
        for name, value in stored_params.items()
        if name not in secret_names or name in current_params
    }


def _restore_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_restore_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {MOMENT}:
        kind, text = value[MOMENT]
        return _MOMENTS[kind].fromisoformat(text)
    return {name: _restore_value(item) for name, item in value.items()}


def build_provenance(
    run_context: "RunContext", task: "Task", step: "PlanStep", refresh: "RefreshResult"
) -> dict[str, Any]:
    """Return the provenance that is stored with a result, in addition to its inputs."""
    basis = run_context.spec.basis
    provenance = {
        "task": task.name,
        "place": str(task.place),
        "action": step.action,
        "reason": step.reason,
        "branch": run_context.spec.branch,
        "author": run_context.store.author,
        "fingerprint": run_context.fingerprints(task).digest,
        "rows": refresh.rows,
        "set_aside": refresh.quarantined_rows,
        "checks": _summarize_findings(run_context.findings.get(task.table, ())),
    }
    if basis is None:
        return provenance
    return {**provenance, "params": basis.params(task), "given": basis.encode_params(task), **basis.describe_run()}


def describe_row_relation(task: "Task", *, has_slices: bool) -> dict[str, Any]:
    """Return by which columns a row of a task's table belongs to rows of its inputs, as `runnel why --row` needs it.

    `has_slices` is false if Runnel can't see that a slice depends on its own rows only.
    """
    other_slices = {name for pairs in (task.options.by_input, task.options.lookback) for name, _ in pairs}
    other_slices |= set(task.options.reference)
    return {
        "by": list(task.options.by) if has_slices else [],
        "key": list(task.options.key) if task.options.rowwise else [],
        "other_slices": sorted({str(table) for parameter, table in task.inputs if parameter in other_slices}),
    }


def _summarize_findings(findings: "Iterable[CheckFinding]") -> list[dict[str, Any]]:
    """Return the results of the checks, without examples: erased rows must not survive here."""
    return [
        {
            "check": finding.check.text,
            "on_fail": finding.check.on_fail,
            "failed": finding.failed,
            "kind": finding.check.kind,
        }
        for finding in findings
    ]


def _list_project_modules(files: Iterable[str]) -> set[str]:
    """Return the names by which the project's own modules may be imported."""
    names: set[str] = set()
    for file in files:
        if file.endswith(".py"):
            parts = file.removesuffix(".py").split("/")
            names |= {parts[0], *(parts[1:2] if parts[0] == "flows" else ())}
    return names
