"""Build OpenLineage events for runs and their steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attr
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    JobFacet,
    RunFacet,
    documentation_job,
    error_message_run,
    job_type_job,
    nominal_time_run,
    ownership_job,
    parent_run,
    processing_engine_run,
    source_code_location_job,
    sql_job,
)

from runnel import __version__

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    from runnel.declare.model.flow import Source, Task
    from runnel.errors import RunnelError


@attr.define
class RunnelFacet(RunFacet):
    """Runnel's own facts about a run."""

    run: str
    branch: str
    author: str
    cause: str
    action: str | None = None
    reason: str | None = None
    state: str | None = None
    commit: str | None = None
    spent: dict[str, float] | None = None


@dataclass(frozen=True)
class LineageRun:
    """A run or step as OpenLineage identifies it: a unique id, and the namespace and name of its job."""

    id: str
    namespace: str
    name: str


@dataclass(frozen=True)
class EventHeader:
    """What all events of one run or step have in common."""

    run: LineageRun
    parent: LineageRun | None = None
    due: str | None = None
    job_facets: Mapping[str, JobFacet] = field(default_factory=dict)


def build_event(
    header: EventHeader,
    state: str,
    happened_at: datetime,
    runnel_facet: RunnelFacet,
    *,
    inputs: "Sequence[InputDataset]" = (),
    outputs: "Sequence[OutputDataset]" = (),
    error: "RunnelError | None" = None,
) -> RunEvent:
    """Return one event; `state` is START, RUNNING, COMPLETE, FAIL or ABORT."""
    run = header.run
    facets: dict[str, RunFacet] = {
        "runnel_run": runnel_facet,
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(__version__, "Runnel"),
    }
    if header.parent is not None:
        facets["parent"] = _build_parent_facet(header.parent)
    if header.due is not None:
        facets["nominalTime"] = nominal_time_run.NominalTimeRunFacet(header.due)
    if error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(f"{error.code}: {error.what}", "PYTHON")
    return RunEvent(
        eventTime=happened_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        run=Run(run.id, facets),
        job=Job(run.namespace, run.name, dict(header.job_facets)),
        eventType=RunState[state],
        inputs=list(inputs),
        outputs=list(outputs),
    )


def build_run_job_facets(kind: str = "RUN") -> dict[str, JobFacet]:
    """Return the job facets of whole runs."""
    return {"jobType": job_type_job.JobTypeJobFacet("BATCH", "RUNNEL", kind)}


def build_task_job_facets(task: "Task", git: Mapping[str, Any] | None) -> dict[str, JobFacet]:
    """Return the job facets of a task: its code location, SQL, description and owner."""
    kind = job_type_job.JobTypeJobFacet("STREAMING" if task.options.stream else "BATCH", "RUNNEL", "TASK")
    facets: dict[str, JobFacet] = {"jobType": kind, "sourceCodeLocation": _build_code_location(task.place.file, git)}
    if task.sql is not None:
        facets["sql"] = sql_job.SQLJobFacet(task.sql, "spark")
    return facets | _build_ownership_facets(task.description, task.options.owner)


def build_source_job_facets(source: "Source", git: Mapping[str, Any] | None) -> dict[str, JobFacet]:
    """Return the job facets of a source."""
    kind = job_type_job.JobTypeJobFacet("BATCH", "RUNNEL", "SOURCE")
    facets: dict[str, JobFacet] = {"jobType": kind, "sourceCodeLocation": _build_code_location(source.place.file, git)}
    return facets | _build_ownership_facets(source.description, source.owner)


def _build_ownership_facets(description: str, owner: str | None) -> dict[str, JobFacet]:
    facets: dict[str, JobFacet] = {}
    if description:
        facets["documentation"] = documentation_job.DocumentationJobFacet(description)
    if owner:
        facets["ownership"] = ownership_job.OwnershipJobFacet([ownership_job.Owner(owner)])
    return facets


def _build_code_location(
    path: str, git: Mapping[str, Any] | None
) -> source_code_location_job.SourceCodeLocationJobFacet:
    """Return the location of code: a path within the project, and the git commit if there is one."""
    version = str(git["commit"]) if git else None
    return source_code_location_job.SourceCodeLocationJobFacet(
        "git" if git else "file", f"file:{path}", path=path, version=version
    )


def _build_parent_facet(parent: LineageRun) -> parent_run.ParentRunFacet:
    run, job = parent_run.Run(parent.id), parent_run.Job(parent.namespace, parent.name)
    root = parent_run.Root(parent_run.RootRun(parent.id), parent_run.RootJob(parent.namespace, parent.name))
    return parent_run.ParentRunFacet(run, job, root)
