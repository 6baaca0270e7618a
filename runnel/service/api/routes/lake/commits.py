"""Routes for commits: history, one commit, and revert."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from runnel.client.json_views.commit import commit_detail_json, commit_json, task_result_json
from runnel.lake.history.commits import read_changed_tables, read_changes, read_history
from runnel.lake.provenance.commit_files import list_commit_files
from runnel.names import TableName
from runnel.service.api.dependencies import StoreDependency
from runnel.service.api.etags import set_content_etag
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_page
from runnel.service.api.parameters import DEFAULT_LIMIT, Cursor, Limit, Ref, RefQuery, RequestBody, TableQuery, Text
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["commits"])
CommitPath = Annotated[Ref, Path(description="A commit, a unique prefix of it, or any other ref.")]


class TaskActionView(BaseModel):
    """How a task computed a table in a commit."""

    action: str | None
    reason: str | None
    run: str | None
    rows: int | None
    code_id: str | None


class CommitView(BaseModel):
    """A version of the whole lake."""

    commit: str
    seq: int
    line: str = Field(description="The id of the branch; a later branch of the same name has another")
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


class LoggedCommitView(CommitView):
    """A commit of the history; with the query parameter `table`, also how a task computed that table."""

    made: TaskActionView | None = None


class CommitChangeView(BaseModel):
    """What a commit did to a table; `before` is null if it was created, `after` if it was dropped."""

    table: str
    before: str | None
    after: str | None
    content: str | None = Field(description="The version that has these rows")
    detail: dict[str, Any]


class CommitDetailView(CommitView):
    """A commit with what it did to each table."""

    changes: list[CommitChangeView]


class CommitFileView(BaseModel):
    """A file that a commit read for a table; `rows` is null if the version is gone or does not tell."""

    table: str
    file: str
    change: str = Field(description="added, changed, renamed, removed or unchanged")
    size: int | None
    rows: int | None


class CommitFilesView(BaseModel):
    """The files that a commit ingested or loaded."""

    items: list[CommitFileView]


class RevertRequestBody(RequestBody):
    """How to undo a commit."""

    branch: Ref = "main"
    message: Text | None = None


class RevertResultView(BaseModel):
    """A commit that undid another; what it changed reaches sinks with the next run."""

    reverted: str
    branch: str
    commit: str
    sinks: list[dict[str, Any]]


@router.get(
    "/commits",
    response_model=ListPage[LoggedCommitView],
    response_model_exclude_unset=True,
    summary="Show the history",
    responses=error_responses(304, 404),
)
def list_commits(
    request: Request,
    response: Response,
    store: StoreDependency,
    ref: RefQuery = "main",
    table: TableQuery = None,
    limit: Limit = DEFAULT_LIMIT,
    before: Cursor = None,
) -> dict[str, Any]:
    """Return a version and those before it, newest first; with `table` only what changed it."""
    start, table_name = store.commit(ref), TableName.parse(table) if table else None
    if table_name is not None:
        store.versions(start, [table_name])
    start_commit = store.commit(before) if before else start
    logged_commits = store.db.read(lambda c: read_history(c, start_commit, table=table_name, limit=limit + 2))
    logged_commits = [logged for logged in logged_commits if before is None or logged.id != start_commit.id][
        : limit + 1
    ]
    changed_tables = store.db.read(lambda c: read_changed_tables(c, [logged.id for logged in logged_commits]))
    details: dict[str, Any] = {}
    if table_name is not None:
        pairs = store.db.read(
            lambda c: [(logged.id, read_changes(c, logged.id, table_name)) for logged in logged_commits]
        )
        details = {commit: change.detail for commit, changes in pairs for change in changes}
    answer = build_page(
        logged_commits,
        limit,
        lambda c: c.id,
        lambda c: {**commit_json(c, changed_tables.get(c.id, [])), **task_result_json(details.get(c.id))},
    )
    return set_content_etag(request, response, answer)


@router.get(
    "/commits/{commit}", response_model=CommitDetailView, summary="Show a commit", responses=error_responses(304, 404)
)
def show_commit(request: Request, response: Response, store: StoreDependency, commit: CommitPath) -> dict[str, Any]:
    """Return a commit: its author, its time, and what it did to which tables."""
    resolved = store.commit(commit)
    changes = store.db.read(lambda connection: read_changes(connection, resolved.id))
    return set_content_etag(request, response, commit_detail_json(resolved, changes))


@router.get(
    "/commits/{commit}/files",
    response_model=CommitFilesView,
    summary="List the files of a commit",
    responses=error_responses(304, 404),
)
def list_files(request: Request, response: Response, store: StoreDependency, commit: CommitPath) -> dict[str, Any]:
    """Return the files that a commit ingested or loaded, with their sizes and rows."""
    items = [file.json() for file in list_commit_files(store, store.commit(commit))]
    return set_content_etag(request, response, {"items": items})


@router.post(
    "/commits/{commit}/revert",
    response_model=RevertResultView,
    summary="Undo a commit",
    responses=error_responses(400, 404, 409, 413),
)
def revert_commit(
    store: StoreDependency, commit: CommitPath, key: IdempotencyKey = None, body: RevertRequestBody | None = None
) -> dict[str, Any]:
    """Undo a commit with a new one; history stays."""
    from runnel.lake.merge.revert import revert_commit as revert_lake_commit

    options = body or RevertRequestBody()
    reverted_commit = store.commit(commit)
    new_commit = revert_lake_commit(store, reverted_commit.id, options.branch, options.message)
    return {"reverted": reverted_commit.id, "branch": options.branch, "commit": new_commit.id, "sinks": []}
