"""See at a glance that there is nothing to do, without the database's library.

Whatever is unclear is left to a plan: it asks the lake itself.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

from runnel.lake.sqlite_fast_path import Glance
from runnel.plan.facts import Arrivals, Head, Movement, Result, Size
from runnel.plan.graph import Graph
from runnel.plan.planner import make_plan
from runnel.plan.selection import select as chosen
from runnel.project.planning.lake_facts import look
from runnel.project.planning.source_answers import Asked

if TYPE_CHECKING:
    from runnel.connect.ingest.detect.file_changes import Found
    from runnel.declare.model.flow import Flow, Task
    from runnel.declare.settings import Settings
    from runnel.names import TableName
    from runnel.plan.date_range import Days
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.plan.steps import Plan
    from runnel.project.planning.run_request import Wish


class Unclear(Exception):
    """More is asked than a glance can tell."""


class _GlanceFacts:
    """The facts that a skip needs; everything else is unclear."""

    def __init__(self, glance: Glance, flow: "Flow", storage: Mapping[str, str], asked: Asked) -> None:
        self._asked = asked
        self._glance = glance
        self._flow = flow
        self._storage = storage

    def head(self, table: "TableName") -> Head | None:
        return self._glance.heads.get(table)

    def results(self, keys: "Iterable[tuple[TableName, str]]") -> "Mapping[tuple[TableName, str], Result]":
        return self._glance.results(keys)

    def arrivals(self, table: "TableName") -> Arrivals:
        news = self._asked.news(table, lambda: self._glance.seen(table), self._glance)
        if news is not None and not news.is_empty:
            raise Unclear
        found = self._asked.files(table, self._glance.commit, lambda: self._look(table))
        if found is None:
            return Arrivals()
        if not found.is_empty or found.problem or found.renamed:
            raise Unclear
        return Arrivals(content=found.content, left=found.left)

    def _look(self, table: "TableName") -> "Found | None":
        return look(self._flow, table, self.head(table), lambda: self._glance.position(table), self._storage)

    def made(self, table: "TableName", head: Head) -> NoReturn:
        raise Unclear

    def recent(self, table: "TableName") -> NoReturn:
        raise Unclear

    def versions(self, table: "TableName", content: str) -> NoReturn:
        raise Unclear

    def movement(self, table: "TableName", before: Head, after: Head) -> Movement:
        raise Unclear

    def slices(self, table: "TableName", before: Head, after: Head, expressions: tuple[str, ...]) -> NoReturn:
        raise Unclear

    def slice_count(self, table: "TableName", head: Head, expressions: tuple[str, ...]) -> NoReturn:
        raise Unclear

    def dated(self, table: "TableName", head: Head, by: tuple[str, ...], days: "Days") -> NoReturn:
        raise Unclear

    def columns(self, table: "TableName", head: Head) -> NoReturn:
        raise Unclear

    def size(self, table: "TableName", head: Head) -> Size | None:
        raise Unclear

    def reached(self, table: "TableName") -> NoReturn:
        raise Unclear

    def known(self, table: "TableName", content: str) -> NoReturn:
        raise Unclear


def plan_of_nothing(
    settings: "Settings",
    wish: "Wish",
    flow: "Flow",
    fingerprints: "Callable[[Task], Fingerprint]",
    asked: Asked | None = None,
) -> "Plan | None":
    """Return the plan where it skips everything, else None; what feeds said is kept in `asked`."""
    if wish.full_refresh or wish.verify or wish.days is not None or flow.started_spark is not None:
        return None
    glance = Glance.open(settings.catalog, settings.warehouse, wish.branch)
    if glance is None:
        return None
    try:
        selected = chosen(Graph(flow), flow, wish.select, wish.exclude, _unclear)
        facts = _GlanceFacts(glance, flow, settings.storage, asked or Asked(flow))
        plan = make_plan(flow, facts, fingerprints, branch=wish.branch, commit=glance.commit, selected=selected)
    except Unclear:
        return None
    finally:
        glance.close()
    return None if plan.work else plan


def _unclear() -> NoReturn:
    raise Unclear
