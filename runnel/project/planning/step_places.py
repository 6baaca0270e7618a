"""Say in a plan where each source is read, if that is not simply this process: the project has a cluster or chose."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.model.work_place import EXECUTORS, PROCESS, WorkPlace

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.model.work_place import WorkPlaceRules
    from runnel.names import TableName
    from runnel.plan.steps import Plan
    from runnel.project.planning.lake_facts import LakeFacts


def add_places(plan: "Plan", rules: "WorkPlaceRules", facts: "LakeFacts", root: "Path") -> "Plan":
    """Return a plan whose steps that read a source have a place; executors need Spark."""
    if not rules.has_choice:
        return plan
    steps = tuple(
        replace(step, place=_choose_place(step.table, rules, facts, root)) if step.action == "ingest" else step
        for step in plan.steps
    )
    notes = tuple(f"{step.table} is read {step.place.describe()}" for step in steps if step.place is not None)
    has_executors = any(step.place is not None and step.place.name == EXECUTORS for step in steps)
    return replace(plan, steps=steps, notes=(*plan.notes, *notes), jvm=plan.jvm or has_executors)


def _choose_place(table: "TableName", rules: "WorkPlaceRules", facts: "LakeFacts", root: "Path") -> "WorkPlace | None":
    from runnel.connect.feed.protocol import READ_BY_ONE_PROCESS
    from runnel.connect.ingest.detect.listing import is_object_url

    feed_changes = facts.feed_changes(table)
    if feed_changes is not None:
        if feed_changes.is_place_open:
            return None
        if feed_changes.estimate_bytes is None:
            return WorkPlace(PROCESS, READ_BY_ONE_PROCESS)
        return rules.choose(feed_changes.estimate_bytes)
    file_changes = facts.file_changes(table)
    if file_changes is None or not file_changes.files_to_read:
        return None
    paths = (file.path for file in file_changes.files_to_read if not is_object_url(file.path))
    return rules.choose(file_changes.bytes, (os.path.abspath(root / path) for path in paths))  # noqa: PTH100
