"""Follow a run and tell OpenLineage: the run itself, and each step as a run of its own below it.

What is told is looked up in the sender's thread; here only values are taken down.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runnel.run.openlineage.external_names import named

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

    from runnel.names import TableName
    from runnel.plan.facts import Head
    from runnel.run.observers import Ended
    from runnel.run.openlineage.events import About, Named, RunnelFacet
    from runnel.run.openlineage.sender import Sender
    from runnel.run.results.run_result import Done, Event
    from runnel.run.run_context import Work

_STATES = {"succeeded": "COMPLETE", "nothing": "COMPLETE", "failed": "FAIL", "cancelled": "ABORT"}


@dataclass(frozen=True)
class _Step:
    """A step that has begun: its id, and the versions that it reads."""

    id: str
    inputs: "Mapping[TableName, Head | None]"


class LineageWitness:
    """Tells of one run."""

    def __init__(self, sender: "Sender", project: str) -> None:
        self._sender = sender
        self._project = project
        self._steps: dict[TableName, _Step] = {}
        self._ended: set[TableName] = set()
        self._guard = threading.Lock()
        self._work: Work | None = None
        self._id = _new_id()

    def begin(self, work: "Work") -> None:
        """Tell that the run has started."""
        self._work = work
        at = datetime.now(UTC)
        self._send(lambda: self._run_event("START", at))

    def see(self, event: "Event") -> None:
        """Tell that a step has started or ended."""
        table, now = event.table, datetime.now(UTC)
        if table is None or event.action == "verify":
            return
        if event.kind == "start":
            self._start(table, now, event.action, event.text)
        elif event.kind == "end" and event.outcome is not None and event.outcome.state in _STATES:
            with self._guard:
                if table in self._ended:
                    return
                self._ended.add(table)
            self._start(table, now, event.action, event.outcome.reason)
            done, step = event.outcome, self._steps[table]
            self._send(lambda: self._end_event(done, step, now))

    def end(self, ended: "Ended") -> None:
        """Tell how the run has ended, with what it published."""
        at = datetime.now(UTC)
        state = "ABORT" if ended.is_moved else _STATES[ended.state]
        self._send(lambda: self._run_event(state, at, ended))

    def _send(self, make: "Any") -> None:
        assert self._work is not None
        self._sender.send(make, self._work.log.write)

    def _start(self, table: "TableName", at: datetime, action: str, reason: str) -> None:
        assert self._work is not None
        task = self._work.flow.tasks.get(table)
        with self._guard:
            if table in self._steps:
                return
            inputs = {one: self._work.heads.get(one) for one in (task.reads if task else ())}
            step = self._steps[table] = _Step(_new_id(), inputs)
        self._send(lambda: self._step_event("START", table, step, at, action, reason))

    @property
    def _namespace(self) -> str:
        assert self._work is not None
        return self._sender.namespace(self._project, self._work.order.branch)

    @property
    def _run(self) -> "Named":
        """Return the run; its job is the schedule that wanted it, or `run`."""
        from runnel.run.openlineage.events import Named

        assert self._work is not None
        kind, _, name = self._work.order.cause.partition("/")
        return Named(self._id, self._namespace, f"{self._project}.{name if kind == 'schedule' and name else 'run'}")

    def _run_event(self, state: str, at: datetime, ended: "Ended | None" = None) -> "RunEvent":
        from runnel.run.openlineage.datasets import written
        from runnel.run.openlineage.events import About, event, run_job

        work = self._work
        assert work is not None
        about = About(self._run, due=work.order.due, job=run_job())
        if ended is None:
            return event(about, state, at, self._told(None, None, None))
        made = [step for step in ended.steps if step.state == "succeeded"] if ended.commit else []
        outputs = [
            written(work.store, self._namespace, work.order.branch, step.table, step.head, ended.commit)
            for step in made
        ]
        error = ended.error or next((step.error for step in ended.steps if step.error is not None), None)
        told = self._told(None, None, ended.state, ended.commit)
        return event(about, state, at, told, outputs=outputs, error=error)

    def _step_event(
        self, state: str, table: "TableName", step: _Step, at: datetime, action: str, reason: str
    ) -> "RunEvent":
        from runnel.run.openlineage.events import event

        return event(
            self._about(table, step), state, at, self._told(action, reason, None), inputs=self._inputs(table, step)
        )

    def _end_event(self, done: "Done", step: _Step, at: datetime) -> "RunEvent":
        from runnel.run.openlineage.datasets import written
        from runnel.run.openlineage.events import event

        work = self._work
        assert work is not None
        findings = work.findings.get(done.table, ())
        outputs: list[OutputDataset] = []
        if done.head is not None or findings:
            made = written(
                work.store, self._namespace, work.order.branch, done.table, done.head, None, done.rows, findings
            )
            outputs.append(made)
        told = self._told(done.action, done.reason, done.state)
        inputs = self._inputs(done.table, step)
        about = self._about(done.table, step)
        return event(about, _STATES[done.state], at, told, inputs=inputs, outputs=outputs, error=done.error)

    def _about(self, table: "TableName", step: _Step) -> "About":
        from runnel.run.openlineage.events import About, Named, source_job, task_job

        work = self._work
        assert work is not None
        git = work.order.basis.git if work.order.basis else None
        flow = work.flow
        job = task_job(flow.tasks[table], git) if table in flow.tasks else source_job(flow.sources[table], git)
        return About(Named(step.id, self._namespace, str(table)), self._run, work.order.due, job)

    def _inputs(self, table: "TableName", step: _Step) -> "list[InputDataset]":
        from runnel.run.openlineage.datasets import outside, read

        work = self._work
        assert work is not None
        if table in work.flow.sources:
            return outside(named(work.flow.sources[table].origin, work.root))
        branch = work.order.branch
        return [read(work.store, self._namespace, branch, one, head) for one, head in step.inputs.items()]

    def _told(
        self, action: str | None, reason: str | None, state: str | None, commit: str | None = None
    ) -> "RunnelFacet":
        from runnel.run.openlineage.events import RunnelFacet

        assert self._work is not None
        order = self._work.order
        return RunnelFacet(order.run, order.branch, self._work.store.author, order.cause, action, reason, state, commit)


def _new_id() -> str:
    from uuid import uuid4

    return str(uuid4())
