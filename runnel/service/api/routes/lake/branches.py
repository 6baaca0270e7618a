"""Routes for branches and tags."""

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from runnel.client.json_views.commit import branch_json, tag_json
from runnel.lake.history import branches as lake_branches
from runnel.lake.history import tags as lake_tags
from runnel.service.api.dependencies import StoreDependency
from runnel.service.api.etags import set_content_etag
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.parameters import NamePath, Ref, RequestBody
from runnel.service.api.problem_json import error_responses

router = APIRouter()


class BranchView(BaseModel):
    """A named, moving line of commits. `from` is the commit that it was forked off."""

    branch: str
    line: str = Field(description="The id of this branch; a later branch of the same name has another")
    head: str
    created_at: str
    author: str
    from_: str | None = Field(alias="from")


class NewBranch(RequestBody):
    """A branch to create."""

    name: Ref
    from_: Ref = Field(default="main", alias="from", description="The ref where the branch starts")


class TagView(BaseModel):
    """A name that stays at one commit, and keeps its contents for ever."""

    tag: str
    commit: str
    author: str
    at: str


class NewTag(RequestBody):
    """A tag to create, or to move by force."""

    name: Ref
    ref: Ref = "main"
    force: bool = False


class DeletionView(BaseModel):
    """The name of the branch or tag that was deleted."""

    deleted: str


@router.get(
    "/branches",
    tags=["branches"],
    response_model=ListPage[BranchView],
    summary="List branches",
    responses=error_responses(304),
)
def list_branches(request: Request, response: Response, store: StoreDependency) -> dict[str, Any]:
    """Return all branches, main first."""
    records = store.db.read(lake_branches.list_branches)
    return set_content_etag(request, response, build_single_page([branch_json(record) for record in records]))


@router.post(
    "/branches",
    tags=["branches"],
    status_code=201,
    response_model=BranchView,
    summary="Create a branch",
    responses=error_responses(400, 404, 409, 413),
)
def create_branch(store: StoreDependency, body: NewBranch, key: IdempotencyKey = None) -> dict[str, Any]:
    """Create a branch; no data is copied."""
    return branch_json(lake_branches.fork_branch(store.db, body.name, store.commit(body.from_), store.author))


@router.delete(
    "/branches/{name}",
    tags=["branches"],
    response_model=DeletionView,
    summary="Delete a branch",
    responses=error_responses(404, 409),
)
def delete_branch(store: StoreDependency, name: NamePath) -> dict[str, Any]:
    """Delete a branch; its commits stay until their retention ends."""
    lake_branches.delete_branch(store.db, name)
    return {"deleted": name}


@router.get(
    "/tags", tags=["tags"], response_model=ListPage[TagView], summary="List tags", responses=error_responses(304)
)
def list_tags(request: Request, response: Response, store: StoreDependency) -> dict[str, Any]:
    """Return all tags by name."""
    records = store.db.read(lake_tags.list_tags)
    return set_content_etag(request, response, build_single_page([tag_json(record) for record in records]))


@router.post(
    "/tags",
    tags=["tags"],
    status_code=201,
    response_model=TagView,
    summary="Create a tag",
    responses=error_responses(400, 404, 409, 413),
)
def create_tag(store: StoreDependency, body: NewTag, key: IdempotencyKey = None) -> dict[str, Any]:
    """Create a tag, which keeps its commit for ever."""
    return tag_json(lake_tags.create_tag(store, body.name, body.ref, force=body.force))


@router.delete(
    "/tags/{name}",
    tags=["tags"],
    response_model=DeletionView,
    summary="Delete a tag",
    responses=error_responses(404, 409),
)
def delete_tag(store: StoreDependency, name: NamePath) -> dict[str, Any]:
    """Delete a tag; its commit then stays as long as any other."""
    lake_tags.delete_tag(store, name)
    return {"deleted": name}
