"""Routes to compare two versions and to merge branches."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from runnel.client.json_views.diff import diff_json, steps_json
from runnel.lake.history.branches import get_branch
from runnel.lake.history.refs import check_retained
from runnel.service.api.dependencies import LakeDependency, StoreDependency
from runnel.service.api.etags import set_etag
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.parameters import Ref, RequestBody, TableQuery, Text
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["merge"])
VersionQuery = Annotated[Ref, Query(description="A version: a branch, a tag, a commit.")]


class TableDiffView(BaseModel):
    """How one table differs; counts are null if they can't be determined, and `reason` says why."""

    table: str
    change: str
    rows_added: int | None
    rows_removed: int | None
    schema_: list[str] = Field(alias="schema")
    reason: str | None


class DiffView(BaseModel):
    """How two versions of the lake differ."""

    before: str
    after: str
    tables: list[TableDiffView]


class MergeRequestBody(RequestBody):
    """A branch to merge into another."""

    branch: Ref
    into: Ref = "main"
    message: Text | None = None


class MergeStepView(BaseModel):
    """What a merge did to a table."""

    table: str
    action: str
    reason: str | None


class MergeResultView(BaseModel):
    """What a merge did; `commit` is null if there was nothing to merge."""

    branch: str
    into: str
    commit: str | None
    source: str = Field(description="The head of the branch, when it was merged")
    target: str = Field(description="The head of the branch that it was merged into, before")
    bases: list[str] = Field(description="The newest common ancestors of both")
    steps: list[MergeStepView]
    sinks: list[dict[str, Any]]


@router.get("/diff", response_model=DiffView, summary="Compare two versions", responses=error_responses(304, 404))
def compare_versions(
    request: Request,
    response: Response,
    lake: LakeDependency,
    a: VersionQuery,
    b: VersionQuery,
    table: TableQuery = None,
) -> dict[str, Any]:
    """Return which tables of `b` differ from those of `a`, how their columns changed, and how many rows."""
    before, after = (check_retained(lake.store.commit(ref)) for ref in (a, b))
    set_etag(request, response, f"{before.id}-{after.id}")
    return diff_json(lake.diff(before.id, after.id, table))


@router.post(
    "/merge", response_model=MergeResultView, summary="Merge a branch", responses=error_responses(400, 404, 409, 413)
)
def merge_branches(store: StoreDependency, body: MergeRequestBody, key: IdempotencyKey = None) -> dict[str, Any]:
    """Merge a branch as one commit, without computing tables.

    If tables must be computed, or both branches changed a table in ways that conflict, the answer is 409 and `tables`
    names them. The next run delivers the merged changes to sinks.
    """
    from runnel.lake.merge.merge import merge_branch

    store.db.read(lambda connection: [get_branch(connection, name) for name in (body.branch, body.into)])
    result = merge_branch(store, body.branch, body.into, body.message)
    summary = {"branch": body.branch, "into": body.into, "commit": result.commit.id if result.commit else None}
    plan = result.plan
    commits = {"source": plan.source.id, "target": plan.target.id, "bases": [base.id for base in plan.bases]}
    return {**summary, **commits, "steps": steps_json(plan.steps), "sinks": []}
