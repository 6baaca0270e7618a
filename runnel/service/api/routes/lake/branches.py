"""Branches and tags."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from runnel.client.json_views.commit import branch_json, tag_json
from runnel.lake.history import branches as lines
from runnel.lake.history import tags as marks
from runnel.service.api.dependencies import StoreHere
from runnel.service.api.etags import tag_of
from runnel.service.api.middleware.idempotency import Key
from runnel.service.api.pagination import Page, whole
from runnel.service.api.parameters import Body, Name, Ref
from runnel.service.api.problem_json import problems

router = APIRouter()


class BranchShown(BaseModel):
    """A named, moving line of commits. `from` is the commit that it was forked off."""

    branch: str
    line: str = Field(description="One life of a branch of this name")
    head: str
    created_at: str
    author: str
    from_: str | None = Field(alias="from")


class NewBranch(Body):
    """A branch to create."""

    name: Ref
    from_: Ref = Field(default="main", alias="from", description="Where it starts")


class TagShown(BaseModel):
    """A name that stays at one commit, and keeps its contents for ever."""

    tag: str
    commit: str
    author: str
    at: str


class NewTag(Body):
    """A tag to create, or to move by force."""

    name: Ref
    ref: Ref = "main"
    force: bool = False


class Deleted(BaseModel):
    """What is gone."""

    deleted: str


@router.get(
    "/branches", tags=["branches"], response_model=Page[BranchShown], summary="List branches", responses=problems(304)
)
def branches(request: Request, response: Response, store: StoreHere) -> dict[str, Any]:
    """Return all branches, main first."""
    found = store.db.read(lines.branches)
    return tag_of(request, response, whole([branch_json(one) for one in found]))


@router.post(
    "/branches",
    tags=["branches"],
    status_code=201,
    response_model=BranchShown,
    summary="Create a branch",
    responses=problems(400, 404, 409, 413),
)
def fork(store: StoreHere, body: NewBranch, key: Key = None) -> dict[str, Any]:
    """Create a branch; no data is copied."""
    return branch_json(lines.fork(store.db, body.name, store.commit(body.from_), store.author))


@router.delete(
    "/branches/{name}",
    tags=["branches"],
    response_model=Deleted,
    summary="Delete a branch",
    responses=problems(404, 409),
)
def delete_branch(store: StoreHere, name: Name) -> dict[str, Any]:
    """Delete a branch; its commits stay until their retention ends."""
    lines.delete(store.db, name)
    return {"deleted": name}


@router.get("/tags", tags=["tags"], response_model=Page[TagShown], summary="List tags", responses=problems(304))
def tags(request: Request, response: Response, store: StoreHere) -> dict[str, Any]:
    """Return all tags by name."""
    found = store.db.read(marks.tags)
    return tag_of(request, response, whole([tag_json(one) for one in found]))


@router.post(
    "/tags",
    tags=["tags"],
    status_code=201,
    response_model=TagShown,
    summary="Create a tag",
    responses=problems(400, 404, 409, 413),
)
def mark(store: StoreHere, body: NewTag, key: Key = None) -> dict[str, Any]:
    """Give a commit a name that keeps it for ever."""
    return tag_json(marks.tag(store, body.name, body.ref, force=body.force))


@router.delete(
    "/tags/{name}", tags=["tags"], response_model=Deleted, summary="Delete a tag", responses=problems(404, 409)
)
def delete_tag(store: StoreHere, name: Name) -> dict[str, Any]:
    """Delete a tag; its commit then stays as long as any other."""
    marks.delete(store, name)
    return {"deleted": name}
