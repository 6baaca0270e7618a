"""Report a run to OpenLineage: the run itself, and each step as a child run.

The sender's thread looks up details and builds the events; this module only captures values.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runnel.run.openlineage.external_names import name_origin

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

    from runnel.model.table_version import TableVersion
    from runnel.names import TableName
    from runnel.run.observers import RunEnd
    from runnel.run.openlineage.datasets import LakeDatasets
    from runnel.run.openlineage.events import EventHeader, LineageRun, RunnelFacet
    from runnel.run.openlineage.sender import LineageSender
    from runnel.run.results.run_result import Event, StepResult
    from runnel.run.run_context import RunContext

_STATES = {"succeeded": "COMPLETE", "nothing": "COMPLETE", "failed": "FAIL", "cancelled": "ABORT"}


@dataclass(frozen=True)
class _StartedStep:
    """A started step: its id, and the versions that it reads."""

    id: str
    inputs: "Mapping[TableName, TableVersion | None]"


class LineageObserver:
    """Report one run."""

    def __init__(self, sender: "LineageSender", project: str) -> None:
        self._sender = sender
        self._project = project
        self._steps: dict[TableName, _StartedStep] = {}
        self._ended: set[TableName] = set()
        self._guard = threading.Lock()
        self._run_context: RunContext | None = None
        self._id = _make_id()

    def on_start(self, run_context: "RunContext") -> None:
        """Report the start of the run."""
        self._run_context = run_context
        happened_at = datetime.now(UTC)
        self._queue_event(lambda: self._build_run_event("START", happened_at))

    def on_event(self, event: "Event") -> None:
        """Report the start or end of a step."""
        table, now = event.table, datetime.now(UTC)
        if table is None or event.action == "verify":
            return
        if event.kind == "start":
            self._start_step(table, now, event.action, event.text)
        elif event.kind == "end" and event.outcome is not None and event.outcome.state in _STATES:
            with self._guard:
                if table in self._ended:
                    return
                self._ended.add(table)
            self._start_step(table, now, event.action, event.outcome.reason)
            result, step = event.outcome, self._steps[table]
            self._queue_event(lambda: self._build_end_event(result, step, now))

    def on_end(self, run_end: "RunEnd") -> None:
        """Report the end of the run, with what it published."""
        happened_at = datetime.now(UTC)
        state = "ABORT" if run_end.is_replanned else _STATES[run_end.state]
        self._queue_event(lambda: self._build_run_event(state, happened_at, run_end))

    def _queue_event(self, make_event: "Any") -> None:
        assert self._run_context is not None
        self._sender.send(make_event, self._run_context.log.write)

    def _start_step(self, table: "TableName", happened_at: datetime, action: str, reason: str) -> None:
        assert self._run_context is not None
        task = self._run_context.flow.tasks.get(table)
        with self._guard:
            if table in self._steps:
                return
            inputs = {
                input_table: self._run_context.heads.get(input_table)
                for input_table in (task.input_tables if task else ())
            }
            step = self._steps[table] = _StartedStep(_make_id(), inputs)
        self._queue_event(lambda: self._build_start_event(table, step, happened_at, action, reason))

    @property
    def _namespace(self) -> str:
        assert self._run_context is not None
        return self._sender.namespace(self._project, self._run_context.spec.branch)

    @property
    def _lineage_run(self) -> "LineageRun":
        """Return the run; its job is the schedule that requested it, or `run`."""
        from runnel.run.openlineage.events import LineageRun

        assert self._run_context is not None
        kind, _, name = self._run_context.spec.cause.partition("/")
        return LineageRun(
            self._id, self._namespace, f"{self._project}.{name if kind == 'schedule' and name else 'run'}"
        )

    def _build_run_event(self, state: str, happened_at: datetime, run_end: "RunEnd | None" = None) -> "RunEvent":
        from runnel.run.openlineage.events import EventHeader, build_event, build_run_job_facets

        run_context = self._run_context
        assert run_context is not None
        header = EventHeader(self._lineage_run, due=run_context.spec.due, job_facets=build_run_job_facets())
        if run_end is None:
            return build_event(header, state, happened_at, self._build_runnel_facet(None, None, None))
        published_steps = [step for step in run_end.steps if step.state == "succeeded"] if run_end.commit else []
        datasets = self._make_datasets()
        outputs = [datasets.make_output(step.table, step.head, run_end.commit) for step in published_steps]
        error = run_end.error or next((step.error for step in run_end.steps if step.error is not None), None)
        runnel_facet = self._build_runnel_facet(None, None, run_end.state, run_end.commit)
        return build_event(header, state, happened_at, runnel_facet, outputs=outputs, error=error)

    def _build_start_event(
        self, table: "TableName", step: _StartedStep, happened_at: datetime, action: str, reason: str
    ) -> "RunEvent":
        from runnel.run.openlineage.events import build_event

        return build_event(
            self._build_header(table, step),
            "START",
            happened_at,
            self._build_runnel_facet(action, reason, None),
            inputs=self._list_inputs(table, step),
        )

    def _build_end_event(self, result: "StepResult", step: _StartedStep, happened_at: datetime) -> "RunEvent":
        from runnel.run.openlineage.events import build_event

        run_context = self._run_context
        assert run_context is not None
        findings = run_context.findings.get(result.table, ())
        outputs: list[OutputDataset] = []
        if result.head is not None or findings:
            outputs.append(self._make_datasets().make_output(result.table, result.head, None, result.rows, findings))
        runnel_facet = self._build_runnel_facet(result.action, result.reason, result.state)
        inputs = self._list_inputs(result.table, step)
        header = self._build_header(result.table, step)
        return build_event(
            header, _STATES[result.state], happened_at, runnel_facet, inputs=inputs, outputs=outputs, error=result.error
        )

    def _build_header(self, table: "TableName", step: _StartedStep) -> "EventHeader":
        from runnel.run.openlineage.events import (
            EventHeader,
            LineageRun,
            build_source_job_facets,
            build_task_job_facets,
        )

        run_context = self._run_context
        assert run_context is not None
        git = run_context.spec.basis.git if run_context.spec.basis else None
        flow = run_context.flow
        job_facets = (
            build_task_job_facets(flow.tasks[table], git)
            if table in flow.tasks
            else build_source_job_facets(flow.sources[table], git)
        )
        return EventHeader(
            LineageRun(step.id, self._namespace, str(table)), self._lineage_run, run_context.spec.due, job_facets
        )

    def _list_inputs(self, table: "TableName", step: _StartedStep) -> "list[InputDataset]":
        from runnel.run.openlineage.datasets import make_external_inputs

        run_context = self._run_context
        assert run_context is not None
        if table in run_context.flow.sources:
            return make_external_inputs(name_origin(run_context.flow.sources[table].origin, run_context.root))
        datasets = self._make_datasets()
        return [datasets.make_input(input_table, head) for input_table, head in step.inputs.items()]

    def _make_datasets(self) -> "LakeDatasets":
        from runnel.run.openlineage.datasets import LakeDatasets

        assert self._run_context is not None
        return LakeDatasets(self._run_context.store, self._namespace, self._run_context.spec.branch)

    def _build_runnel_facet(
        self, action: str | None, reason: str | None, state: str | None, commit: str | None = None
    ) -> "RunnelFacet":
        from runnel.run.openlineage.events import RunnelFacet

        assert self._run_context is not None
        spec = self._run_context.spec
        return RunnelFacet(
            spec.run, spec.branch, self._run_context.store.author, spec.cause, action, reason, state, commit
        )


def _make_id() -> str:
    from uuid import uuid4

    return str(uuid4())
