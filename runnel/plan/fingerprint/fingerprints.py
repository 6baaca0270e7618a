"""Compute the fingerprint of a task: with equal fingerprints, equal inputs give equal tables.

Reads the source of the project's files and the functions in memory; uses no Spark and no network, and runs no task.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from types import FunctionType
from typing import Any

from runnel.declare.model.flow import Task
from runnel.model.secret_mask import is_secret_name
from runnel.plan.fingerprint.code.code_unit import CodeUnit, FingerprintPart, hash_texts, iter_reached_units, short_hash
from runnel.plan.fingerprint.code.code_walker import CodeWalker
from runnel.plan.fingerprint.code.name_resolution import NameResolver
from runnel.plan.fingerprint.declared_options import collect_declared
from runnel.plan.fingerprint.project_files import ProjectFiles
from runnel.plan.fingerprint.spark_conf import iter_deciding_settings

FORMAT_VERSION = 1  # of the digest: increase it if the same code would get another digest


@dataclass(frozen=True)
class Fingerprint:
    """What a task's result depends on besides its inputs. `opaque` lists for people what could not be followed."""

    digest: str
    parts: tuple[FingerprintPart, ...] = ()
    opaque: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for the catalog database, enough to describe later what changed."""
        parts = []
        for part in self.parts:
            row: list[Any] = [part.kind, part.name, part.hash]
            if part.statements or part.display_text is not None:
                row.append(
                    part.display_text
                    if part.display_text is not None
                    else "".join(short for _, short in part.statements)
                )
            parts.append(row)
        return {"form": FORMAT_VERSION, "digest": self.digest, "parts": parts, "opaque": list(self.opaque)}


class Fingerprinter:
    """Computes the fingerprints for one plan; code that tasks share is read once. `secrets` are never stored as text.

    `conf` are the project's Spark settings; those that affect query results count.
    """

    def __init__(self, root: Path, secrets: Iterable[str] = (), conf: Mapping[str, str] | None = None) -> None:
        self._walker = CodeWalker(ProjectFiles(root))
        self._secrets = frozenset(secrets)
        self._settings = tuple(iter_deciding_settings(conf or {}))
        self._cache: dict[int, tuple[Task, Fingerprint]] = {}
        self._lock = RLock()

    def fingerprint_of(self, task: Task) -> Fingerprint:
        """Return the fingerprint of a task, computed at the first call and then cached."""
        with self._lock:
            cached = self._cache.get(id(task))
            if cached is None:
                cached = self._cache[id(task)] = (task, self._compute_fingerprint(task))
            return cached[1]

    def _compute_fingerprint(self, task: Task) -> Fingerprint:
        texts, parts, roots = collect_declared(task, self._walker, self._secrets)
        if task.sql is not None:
            text = _normalize_task_sql(task.sql)
            texts.append(f"sql {text}")
            parts.append(FingerprintPart("code", f"{task.place.file}:{task.table}", short_hash(text), task.place))
        else:
            roots = [self._root_unit(task), *roots]
        for name, value in self._settings:
            is_secret = is_secret_name(name) or any(secret and secret in value for secret in self._secrets)
            texts.append(f"setting {name} {value}")
            parts.append(FingerprintPart("setting", name, short_hash(value), display_text=None if is_secret else value))
        opaque: dict[str, None] = {}
        for unit, numbers in iter_reached_units(roots):
            texts.append(f"{unit.own_text} {numbers}")
            parts.extend(unit.parts)
            opaque.update(dict.fromkeys(unit.opaque))
        return Fingerprint(hash_texts([f"form {FORMAT_VERSION}", *texts]), tuple(parts), tuple(opaque))

    def _root_unit(self, task: Task) -> CodeUnit:
        function = task.function
        set_params = frozenset(name for name, _ in task.params)
        unit = self._walker.function_unit(function, set_params) if isinstance(function, FunctionType) else None
        if unit is None:  # a function of a package, or another callable
            unit = CodeUnit(str(task.table))
            resolver = NameResolver(self._walker, task.place, {}, {}, task.name)
            resolver.add_value(task.name, function, kind="value")
            resolver.collector.fill_unit(unit, "", FingerprintPart("code", unit.label, "", task.place))
        return unit


def fingerprint_task(task: Task, root: Path) -> Fingerprint:
    """Compute the fingerprint of one task of the project in `root`."""
    return Fingerprinter(root).fingerprint_of(task)


def _normalize_task_sql(sql: str) -> str:
    from runnel.declare.sql.task_sql import normalize_sql

    return normalize_sql(sql)
