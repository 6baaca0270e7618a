"""The fingerprint of a task: equal ones make equal tables of equal inputs.

Reads the source of the project's files and the functions in memory; no Spark, no network, and nothing is run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from types import FunctionType
from typing import Any

from runnel.declare.model.flow import Task
from runnel.plan.fingerprint.code.code_unit import Part, Unit, digest, mark, reached
from runnel.plan.fingerprint.code.code_walker import Reach
from runnel.plan.fingerprint.code.name_resolution import Names
from runnel.plan.fingerprint.declared_options import declared
from runnel.plan.fingerprint.project_files import Project
from runnel.plan.fingerprint.spark_conf import deciding

FORM = 1  # of the digest: counts up when the same code would get another one


@dataclass(frozen=True)
class Fingerprint:
    """What a task's result depends on beside its inputs. `opaque` tells people what could not be followed."""

    digest: str
    parts: tuple[Part, ...] = ()
    opaque: tuple[str, ...] = ()

    def stored(self) -> dict[str, Any]:
        """Return it for the catalog database: enough to say later what changed."""
        parts = []
        for part in self.parts:
            row: list[Any] = [part.kind, part.name, part.hash]
            if part.statements or part.shown is not None:
                row.append(part.shown if part.shown is not None else "".join(short for _, short in part.statements))
            parts.append(row)
        return {"form": FORM, "digest": self.digest, "parts": parts, "opaque": list(self.opaque)}


class Fingerprints:
    """The fingerprints of one planning: what tasks share is looked at once. `secrets` are never kept as text.

    `conf` are the project's Spark settings; those that decide what a query answers count.
    """

    def __init__(self, root: Path, secrets: Iterable[str] = (), conf: Mapping[str, str] | None = None) -> None:
        self._reach = Reach(Project(root))
        self._secrets = frozenset(secrets)
        self._settings = tuple(deciding(conf or {}))
        self._known: dict[int, tuple[Task, Fingerprint]] = {}
        self._lock = RLock()

    def of(self, task: Task) -> Fingerprint:
        """Return the fingerprint of a task as it was when it was first asked for."""
        with self._lock:
            known = self._known.get(id(task))
            if known is None:
                known = self._known[id(task)] = (task, self._make(task))
            return known[1]

    def _make(self, task: Task) -> Fingerprint:
        texts, parts, roots = declared(task, self._reach, self._secrets)
        if task.sql is not None:
            text = _normalised(task.sql)
            texts.append(f"sql {text}")
            parts.append(Part("code", f"{task.place.file}:{task.table}", mark(text), task.place))
        else:
            roots = [self._root(task), *roots]
        for name, value in self._settings:
            is_secret = any(secret and secret in value for secret in self._secrets)
            texts.append(f"setting {name} {value}")
            parts.append(Part("setting", name, mark(value), shown=None if is_secret else value))
        opaque: dict[str, None] = {}
        for unit, numbers in reached(roots):
            texts.append(f"{unit.own} {numbers}")
            parts.extend(unit.parts)
            opaque.update(dict.fromkeys(unit.opaque))
        return Fingerprint(digest([f"form {FORM}", *texts]), tuple(parts), tuple(opaque))

    def _root(self, task: Task) -> Unit:
        function = task.function
        given = frozenset(name for name, _ in task.params)
        unit = self._reach.function(function, given) if isinstance(function, FunctionType) else None
        if unit is None:  # of a package, or something else that can be called
            unit = Unit(str(task.table))
            names = Names(self._reach, task.place.file, {}, {}, task.name, task.place.line)
            names.add_value(task.name, function, kind="value")
            names.gathering.finish(unit, "", Part("code", unit.label, "", task.place))
        return unit


def fingerprint(task: Task, root: Path) -> Fingerprint:
    """Return the fingerprint of one task of the project in `root`."""
    return Fingerprints(root).of(task)


def _normalised(sql: str) -> str:
    from runnel.declare.sql.task_sql import normalised

    return normalised(sql)
