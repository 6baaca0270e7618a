"""Commits: the history, one of them, and undoing one."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from runnel.client.json_views.commit import commit_json, how_json, whole_json
from runnel.lake.history.commits import changes_of, history, tables_changed
from runnel.names import TableName
from runnel.service.api.dependencies import StoreHere
from runnel.service.api.etags import tag_of
from runnel.service.api.middleware.idempotency import Key
from runnel.service.api.pagination import Page, page
from runnel.service.api.parameters import DEFAULT, At, Body, Cursor, Limit, Ref, TableQuery, Text
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["commits"])
CommitPath = Annotated[Ref, Path(description="A commit, its beginning, or any other ref.")]


class How(BaseModel):
    """How a task made a table in a commit."""

    action: str | None
    reason: str | None
    run: str | None
    rows: int | None
    code_id: str | None


class CommitShown(BaseModel):
    """A version of the whole lake."""

    commit: str
    seq: int
    line: str = Field(description="One life of a branch")
    branch: str
    parent: str | None
    merged: str | None
    kind: str
    message: str
    author: str
    at: str
    run: str | None
    expired: bool
    expired_at: str | None
    tables: list[str]


class Logged(CommitShown):
    """A commit of the history; with `table`, also how a task made it."""

    made: How | None = None


class Changed(BaseModel):
    """What a commit did to a table; `before` or `after` is null where it was created or dropped."""

    table: str
    before: str | None
    after: str | None
    content: str | None = Field(description="The version whose rows these are")
    detail: dict[str, Any]


class CommitWhole(CommitShown):
    """A commit with what it did to each table."""

    changes: list[Changed]


class Reverting(Body):
    """How to undo a commit."""

    branch: Ref = "main"
    message: Text | None = None


class Reverted(BaseModel):
    """A commit that undid another; what it changed reaches sinks with the next run."""

    reverted: str
    branch: str
    commit: str
    sinks: list[dict[str, Any]]


@router.get(
    "/commits",
    response_model=Page[Logged],
    response_model_exclude_unset=True,
    summary="Show the history",
    responses=problems(304, 404),
)
def commits(
    request: Request,
    response: Response,
    store: StoreHere,
    ref: At = "main",
    table: TableQuery = None,
    limit: Limit = DEFAULT,
    before: Cursor = None,
) -> dict[str, Any]:
    """Return a version and those before it, newest first; with `table` only what changed it."""
    start, wanted = store.commit(ref), TableName.parse(table) if table else None
    if wanted is not None:
        store.versions(start, [wanted])
    since = store.commit(before) if before else start
    found = store.db.read(lambda c: history(c, since, table=wanted, limit=limit + 2))
    found = [one for one in found if before is None or one.id != since.id][: limit + 1]
    changed = store.db.read(lambda c: tables_changed(c, [one.id for one in found]))
    details: dict[str, Any] = {}
    if wanted is not None:
        pairs = store.db.read(lambda c: [(one.id, changes_of(c, one.id, wanted)) for one in found])
        details = {commit: change.detail for commit, changes in pairs for change in changes}
    shown = page(
        found, limit, lambda c: c.id, lambda c: {**commit_json(c, changed.get(c.id, [])), **how_json(details.get(c.id))}
    )
    return tag_of(request, response, shown)


@router.get("/commits/{commit}", response_model=CommitWhole, summary="Show a commit", responses=problems(304, 404))
def commit(request: Request, response: Response, store: StoreHere, commit: CommitPath) -> dict[str, Any]:
    """Return who made a version, when, and what it did to which tables."""
    found = store.commit(commit)
    changes = store.db.read(lambda connection: changes_of(connection, found.id))
    return tag_of(request, response, whole_json(found, changes))


@router.post(
    "/commits/{commit}/revert", response_model=Reverted, summary="Undo a commit", responses=problems(400, 404, 409, 413)
)
def revert(store: StoreHere, commit: CommitPath, key: Key = None, body: Reverting | None = None) -> dict[str, Any]:
    """Undo a commit with a new one; history stays."""
    from runnel.lake.merge.revert import revert as undo

    asked = body or Reverting()
    undone = store.commit(commit)
    done = undo(store, undone.id, asked.branch, asked.message)
    return {"reverted": undone.id, "branch": asked.branch, "commit": done.id, "sinks": []}
