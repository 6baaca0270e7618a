"""Runs and their steps as events of OpenLineage."""

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
    """A run in Runnel's words."""

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
class Named:
    """A run, or a step of one, as OpenLineage names it: an id that nobody else has, and the name of its job."""

    id: str
    namespace: str
    name: str


@dataclass(frozen=True)
class About:
    """What all events of one run or step say."""

    who: Named
    parent: Named | None = None
    due: str | None = None
    job: Mapping[str, JobFacet] = field(default_factory=dict)


def event(
    about: About,
    state: str,
    at: datetime,
    told: RunnelFacet,
    *,
    inputs: "Sequence[InputDataset]" = (),
    outputs: "Sequence[OutputDataset]" = (),
    error: "RunnelError | None" = None,
) -> RunEvent:
    """Return one event; `state` is START, RUNNING, COMPLETE, FAIL or ABORT."""
    who = about.who
    facets: dict[str, RunFacet] = {
        "runnel_run": told,
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(__version__, "Runnel"),
    }
    if about.parent is not None:
        facets["parent"] = _parent(about.parent)
    if about.due is not None:
        facets["nominalTime"] = nominal_time_run.NominalTimeRunFacet(about.due)
    if error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(f"{error.code}: {error.what}", "PYTHON")
    return RunEvent(
        eventTime=at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        run=Run(who.id, facets),
        job=Job(who.namespace, who.name, dict(about.job)),
        eventType=RunState[state],
        inputs=list(inputs),
        outputs=list(outputs),
    )


def run_job(kind: str = "RUN") -> dict[str, JobFacet]:
    """Return what is said of the job of whole runs."""
    return {"jobType": job_type_job.JobTypeJobFacet("BATCH", "RUNNEL", kind)}


def task_job(task: "Task", git: Mapping[str, Any] | None) -> dict[str, JobFacet]:
    """Return what is said of a task: where its code is, its SQL, what it is for and whose it is."""
    kind = job_type_job.JobTypeJobFacet("STREAMING" if task.options.stream else "BATCH", "RUNNEL", "TASK")
    found: dict[str, JobFacet] = {"jobType": kind, "sourceCodeLocation": _location(task.place.file, git)}
    if task.sql is not None:
        found["sql"] = sql_job.SQLJobFacet(task.sql, "spark")
    return found | _about(task.description, task.options.owner)


def source_job(source: "Source", git: Mapping[str, Any] | None) -> dict[str, JobFacet]:
    """Return what is said of a source."""
    kind = job_type_job.JobTypeJobFacet("BATCH", "RUNNEL", "SOURCE")
    found: dict[str, JobFacet] = {"jobType": kind, "sourceCodeLocation": _location(source.place.file, git)}
    return found | _about(source.description, source.owner)


def _about(description: str, owner: str | None) -> dict[str, JobFacet]:
    found: dict[str, JobFacet] = {}
    if description:
        found["documentation"] = documentation_job.DocumentationJobFacet(description)
    if owner:
        found["ownership"] = ownership_job.OwnershipJobFacet([ownership_job.Owner(owner)])
    return found


def _location(path: str, git: Mapping[str, Any] | None) -> source_code_location_job.SourceCodeLocationJobFacet:
    """Return where code is: a path within the project, and the commit where there is one."""
    version = str(git["commit"]) if git else None
    return source_code_location_job.SourceCodeLocationJobFacet(
        "git" if git else "file", f"file:{path}", path=path, version=version
    )


def _parent(found: Named) -> parent_run.ParentRunFacet:
    run, job = parent_run.Run(found.id), parent_run.Job(found.namespace, found.name)
    root = parent_run.Root(parent_run.RootRun(found.id), parent_run.RootJob(found.namespace, found.name))
    return parent_run.ParentRunFacet(run, job, root)
