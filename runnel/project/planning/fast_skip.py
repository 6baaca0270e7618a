"""Detect quickly that there is nothing to do, without importing SQLAlchemy.

Anything that is unclear is left to a full plan, which reads the lake itself.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

from runnel.lake.sqlite_fast_path import SqliteBranchReader
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.plan.facts import SourceChanges
from runnel.plan.graph import Graph
from runnel.plan.planner import PlanScope, make_plan
from runnel.plan.selection import select_tables
from runnel.project.planning.lake_facts import read_file_changes
from runnel.project.planning.source_answers import SourceAnswers

if TYPE_CHECKING:
    from runnel.connect.ingest.detect.file_changes import FileChanges
    from runnel.declare.model.flow import Flow, Task
    from runnel.declare.settings import Settings
    from runnel.model.run_request import RunRequest
    from runnel.names import TableName
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.plan.steps import Plan


class NeedsFullPlan(Exception):
    """The fast path lacks a fact, so a full plan is needed."""


class _FastPathFacts:
    """The facts that a skip needs; every other fact raises NeedsFullPlan."""

    def __init__(
        self, glance: SqliteBranchReader, flow: "Flow", storage: Mapping[str, str], answers: SourceAnswers
    ) -> None:
        self._answers = answers
        self._glance = glance
        self._flow = flow
        self._storage = storage

    def head(self, table: "TableName") -> TableVersion | None:
        return self._glance.heads.get(table)

    def results(self, keys: "Iterable[tuple[TableName, str]]") -> "Mapping[tuple[TableName, str], TaskResult]":
        return self._glance.read_results(keys)

    def source_changes(self, table: "TableName") -> SourceChanges:
        news = self._answers.feed_changes(table, lambda: self._glance.read_processed_files(table), self._glance)
        if news is not None and not news.is_empty:
            raise NeedsFullPlan
        changes = self._answers.file_changes(table, self._glance.commit, lambda: self._read_file_changes(table))
        if changes is None:
            return SourceChanges()
        if not changes.is_empty or changes.problem or changes.renamed:
            raise NeedsFullPlan
        return SourceChanges(
            content=changes.content, unfinished_files=changes.unfinished, missing_files=len(changes.missing)
        )

    def _read_file_changes(self, table: "TableName") -> "FileChanges | None":
        return read_file_changes(
            self._flow, table, self.head(table), lambda: self._glance.read_position(table), self._storage
        )

    def _require_full_plan(self, *_: object) -> NoReturn:
        raise NeedsFullPlan

    latest_result = recent_results = find_version = find_versions = stream_positions = _require_full_plan
    columns = size = change_size = changed_slices = slice_count = date_slices = _require_full_plan


def plan_if_idle(
    settings: "Settings",
    request: "RunRequest",
    flow: "Flow",
    fingerprints: "Callable[[Task], Fingerprint]",
    answers: SourceAnswers | None = None,
) -> "Plan | None":
    """Return the plan if it skips everything, else None; answers of sources are cached in `answers`."""
    if request.full_refresh or request.verify or request.days is not None or flow.started_spark is not None:
        return None
    glance = SqliteBranchReader.open(settings.catalog, settings.warehouse, request.branch)
    if glance is None:
        return None
    try:
        selected = select_tables(Graph(flow), flow, request.select, request.exclude, _raise_needs_full_plan)
        facts = _FastPathFacts(glance, flow, settings.storage, answers or SourceAnswers(flow))
        scope = PlanScope(selected)
        plan = make_plan(flow, facts, fingerprints, branch=request.branch, commit=glance.commit, scope=scope)
    except NeedsFullPlan:
        return None
    finally:
        glance.close()
    return None if plan.work else plan


def _raise_needs_full_plan() -> NoReturn:
    raise NeedsFullPlan
