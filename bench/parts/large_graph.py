"""A project of 2,000 tasks: `runnel validate` and `runnel plan`, before anything was computed and when all is.

Computing 2,000 tables would take long and say nothing about a plan, so that the second lake is written as a run would
leave it: empty tables, each with the result that it is known by.
"""

import json
import statistics
import tempfile
from pathlib import Path

from bench.figure import Figure
from bench.graph import wide, write_data, write_project
from bench.peers import runnel

REPEATS = 3


def run(tasks: int = 2000) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder, graph = Path(name), wide(tasks)
        write_data(folder / "data", graph, orders=100, users=200)
        project = folder / "project"
        write_project(project, graph, folder / "data")
        runnel(project, "tables")  # makes the catalog, once in the life of a lake
        figures = [
            _figure(project, f"validate, {tasks:,} tasks", "validate"),
            _figure(project, f"plan, {tasks:,} tasks, nothing computed yet", "plan", {"ingest": 1, "full": tasks}),
        ]
        settle(project)
        return [*figures, _figure(project, f"plan, {tasks:,} tasks, all computed", "plan", {"skip": tasks + 1})]


def _figure(project: Path, name: str, command: str, actions: dict[str, int] | None = None) -> Figure:
    if actions is not None:
        steps = json.loads(runnel(project, command, "--json").output)["steps"]
        found = {action: sum(step["action"] == action for step in steps) for action in actions}
        if found != actions or len(steps) != sum(actions.values()):
            raise RuntimeError(f"the plan should have {actions}, but has {found}")
    took = [runnel(project, command) for _ in range(REPEATS)]
    details: dict[str, object] = {
        "all_seconds": [round(one.seconds, 2) for one in took],
        "cpu_seconds": [round(one.cpu_seconds, 2) for one in took],
    }
    return Figure(name, statistics.median(one.seconds for one in took), "s", "<= 5 s", details)


def settle(project: Path) -> None:
    """Leave a lake as a run leaves it that computed every task, but with empty tables."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    from runnel.client.lake import Lake
    from runnel.declare.settings import load_settings
    from runnel.lake.flow_state import results
    from runnel.lake.history.commits import CommitChange
    from runnel.lake.iceberg import table_metadata
    from runnel.lake.publish import CommitDraft, publish
    from runnel.model.run_request import RunRequest
    from runnel.model.table_version import TableVersion
    from runnel.model.task_result import TaskResult
    from runnel.plan.decisions.task import TaskCase
    from runnel.project.planning.plan_project import plan_project

    runnel(project, "run", "-s", "ods.*")
    schema = Schema(NestedField(1, "id", LongType()))
    with Lake(load_settings(project)) as lake:
        planned = plan_project(lake, RunRequest())
        heads = {table: TableVersion(at.location, at.content) for table, at in planned.state.items()}
        changes = []
        for step in planned.plan.steps:
            task = planned.flow.tasks.get(step.table)
            if task is None:
                continue
            inputs = {table: heads[table] for table in task.input_tables}
            fingerprint = planned.fingerprints(task)
            location, _ = table_metadata.create_table(lake.store, task.table, schema)
            head = heads[task.table] = TableVersion(location, f"rows:{task.table}")
            key = TaskCase(task, fingerprint, inputs).key
            at = planned.commit.at
            results.record(
                lake.store.db, TaskResult(task.table, key, head, fingerprint.to_json(), inputs, "bench", "main", at)
            )
            changes.append(CommitChange(task.table, None, location, head.content))
        publish(lake.store.db, CommitDraft("main", "as if computed", "bench", tuple(changes)))
