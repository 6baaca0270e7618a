"""Comparing two versions, and merging branches."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from runnel.client.json_views.diff import diff_json, steps_json
from runnel.lake.history.branches import branch
from runnel.lake.history.refs import readable
from runnel.service.api.dependencies import LakeHere, StoreHere
from runnel.service.api.etags import tag
from runnel.service.api.middleware.idempotency import Key
from runnel.service.api.parameters import Body, Ref, TableQuery, Text
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["merge"])
Side = Annotated[Ref, Query(description="A version: a branch, a tag, a commit.")]


class TableChange(BaseModel):
    """How one table differs; counts are null where they can't be known, and `reason` says why."""

    table: str
    change: str
    rows_added: int | None
    rows_removed: int | None
    schema_: list[str] = Field(alias="schema")
    reason: str | None


class Difference(BaseModel):
    """How two versions of the lake differ."""

    before: str
    after: str
    tables: list[TableChange]


class Merging(Body):
    """A branch to merge into another."""

    branch: Ref
    into: Ref = "main"
    message: Text | None = None


class Step(BaseModel):
    """What a merge did to a table."""

    table: str
    action: str
    reason: str | None


class MergeDone(BaseModel):
    """What a merge did; `commit` is null where there was nothing to merge."""

    branch: str
    into: str
    commit: str | None
    source: str = Field(description="The head of the branch, when it was merged")
    target: str = Field(description="The head of the branch that it was merged into, before")
    bases: list[str] = Field(description="The newest commits that both had behind them")
    steps: list[Step]
    sinks: list[dict[str, Any]]


@router.get("/diff", response_model=Difference, summary="Compare two versions", responses=problems(304, 404))
def diff(
    request: Request, response: Response, lake: LakeHere, a: Side, b: Side, table: TableQuery = None
) -> dict[str, Any]:
    """Return which tables of `b` differ from those of `a`, how their columns changed, and how many rows."""
    before, after = (readable(lake.store.commit(ref)) for ref in (a, b))
    tag(request, response, f"{before.id}-{after.id}")
    return diff_json(lake.diff(before.id, after.id, table))


@router.post("/merge", response_model=MergeDone, summary="Merge a branch", responses=problems(400, 404, 409, 413))
def merge(store: StoreHere, body: Merging, key: Key = None) -> dict[str, Any]:
    """Merge a branch as one commit, without computing.

    Where tables must be computed, or both branches changed one in ways that don't combine, the answer is 409 and
    `tables` names them. What is merged reaches sinks with the next run.
    """
    from runnel.lake.merge.merge import merge as merge_branch

    store.db.read(lambda connection: [branch(connection, name) for name in (body.branch, body.into)])
    done = merge_branch(store, body.branch, body.into, body.message)
    told = {"branch": body.branch, "into": body.into, "commit": done.commit.id if done.commit else None}
    plan = done.plan
    ends = {"source": plan.source.id, "target": plan.target.id, "bases": [one.id for one in plan.bases]}
    return {**told, **ends, "steps": steps_json(plan.steps), "sinks": []}
