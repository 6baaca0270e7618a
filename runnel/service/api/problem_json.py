"""Errors as `application/problem+json`, with our codes: what the command line tells, over HTTP."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from runnel.errors import Conflict, Mistake, Moved, RunnelError, Unreachable, no_room

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("runnel.api")
MEDIA_TYPE = "application/problem+json"
_STATUSES = {
    "TOKEN_LIMITED": 403,
    "FILES_NO_MATCH": 404,
    "LOG_MISSING": 404,
    "SQL_FAILED": 422,
    "SQL_TIMEOUT": 422,
    "DIFF_TOO_LARGE": 422,
    "EVENTS_MALFORMED": 422,
    "EVENTS_TOO_LARGE": 413,
    "EVENTS_MEDIA_TYPE": 415,
}
_CODES = {400: "REQUEST_INVALID", 404: "PATH_UNKNOWN", 405: "METHOD_NOT_ALLOWED", 413: "REQUEST_TOO_LARGE"}
_COMMON = (401, 403, 422, 500, 503)
_MEANINGS = {
    304: "Nothing has changed since the `ETag` of `If-None-Match`",
    400: "The request can't be read",
    401: "No token, or none that is known",
    403: "The token may not do this",
    404: "There is nothing of that name",
    409: "Something else stands against it now",
    413: "The request is too large",
    415: "The request is of a kind that can't be read here",
    422: "Something in the request is wrong",
    500: "A defect of the service; the trace is in its log",
    503: "A system that is needed does not answer",
}


class Wrong(BaseModel):
    """One field of a request that is wrong."""

    field: str = Field(examples=["query.limit"])
    what: str


class Blocked(BaseModel):
    """A table that stands against a merge, or has to be computed for it."""

    table: str
    action: str
    reason: str | None


class Problem(BaseModel):
    """What went wrong (RFC 9457), with the parts of our errors: a stable code, what happened, where, and what to do."""

    type: str = Field(examples=["urn:runnel:error:BRANCH_UNKNOWN"])
    title: str
    status: int
    detail: str
    code: str = Field(examples=["BRANCH_UNKNOWN"])
    what: str
    at: str | None
    fix: str | None
    kind: str = Field(description="What kind of error it is in Python", examples=["Mistake"])
    exit_code: int = Field(description="What a command ends with that meets it")
    errors: list[Wrong] = Field(default=[], description="Every field that is wrong, where the request is")
    tables: list[Blocked] = Field(default=[], description="The tables that stand against a merge")


class _Invalid(Mistake):
    """A request that is not what the OpenAPI document says."""

    def __init__(self, what: str, fields: list[dict[str, str]]) -> None:
        super().__init__("REQUEST_INVALID", what, fix="/openapi.json says what each request takes")
        self.fields = fields


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return how a route documents its errors: those that every route has, and its own."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*_COMMON, *statuses}):
        found[status] = {"description": _MEANINGS[status]}
        if status >= 400:
            found[status]["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return found


def status_of(error: RunnelError) -> int:
    """Return the status that tells what kind of error it is.

    >>> status_of(Mistake("BRANCH_UNKNOWN", "there is no branch `x`")), status_of(Mistake("NAME_TAG", "no"))
    (404, 422)
    """
    if error.code in _STATUSES:
        return _STATUSES[error.code]
    if error.code.endswith("_NEEDS_SPARK"):
        return 422
    if isinstance(error, Mistake):
        return 404 if error.code.endswith("_UNKNOWN") else 422
    if isinstance(error, Conflict | Moved):
        return 409
    return 503 if isinstance(error, Unreachable) else 500


def told(error: RunnelError, status: int | None = None, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an error as the response that tells it."""
    status = status or status_of(error)
    body: dict[str, Any] = {
        "type": f"urn:runnel:error:{error.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": f"{error.what}; {error.fix}" if error.fix else error.what,
        **error.told(),
    }
    if isinstance(error, _Invalid):
        body["errors"] = error.fields
    if steps := getattr(error, "tables", None):
        body["tables"] = [_blocked(step) for step in steps]
    return JSONResponse(body, status, headers=headers, media_type=MEDIA_TYPE)


def handle(app: FastAPI) -> None:
    """Let an app tell all its errors this way."""
    app.add_exception_handler(RunnelError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)


class Defects:
    """Tells what nobody expected: its trace goes to the log, once, and whoever asked is told that there is one."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Hand a request on; where an answer has begun already, it ends in the middle."""
        has_begun = False

        async def noted(message: "Message") -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            LOG.error("%s %s met a defect", scope.get("method"), scope.get("path"), exc_info=error)
            if scope["type"] == "http" and not has_begun:
                defect = RunnelError("INTERNAL", "the service met a defect", fix="its log has the trace")
                full = no_room(error)
                answer = told(full) if full is not None else told(defect, 500)
                await answer(scope, receive, send)


def _known(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RunnelError)
    if status_of(error) >= 500:
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    caller = getattr(request.state, "caller", None)
    if caller is not None and caller.is_limited:  # names that it may not see must not be told as near misses
        error.what = error.what.partition("; close: ")[0]
    return told(error)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields = [{"field": _field(one["loc"]), "what": str(one["msg"])} for one in error.errors()]
    what = "; ".join(f"`{one['field']}`: {one['what']}" for one in fields[:5])
    return told(_Invalid(_plain(what), fields))


def _refused(request: Request, error: Exception) -> JSONResponse:
    """Tell what the framework refuses: unknown paths and methods, bodies that can't be read."""
    assert isinstance(error, HTTPException)
    whats = {404: "there is nothing at this path", 405: f"{request.method} is not possible here"}
    what = whats.get(error.status_code, str(error.detail))
    fix = "/openapi.json lists all paths" if error.status_code in (404, 405) else None
    code = _CODES.get(error.status_code, "REQUEST_INVALID")
    headers = {"Allow": ", ".join(_possible(request))} if error.status_code == 405 else error.headers
    return told(RunnelError(code, what, fix=fix), error.status_code, headers)


def _possible(request: Request) -> list[str]:
    """Return the methods that a path has, whichever routes have them."""
    routes = request.app.router.routes
    scopes = {method: {**request.scope, "method": method} for method in ("DELETE", "GET", "POST", "PUT")}
    return [method for method, scope in scopes.items() if any(one.matches(scope)[0] == Match.FULL for one in routes)]


def _field(where: tuple[int | str, ...]) -> str:
    return _plain(".".join(str(part) for part in where))


def _blocked(step: Any) -> dict[str, Any]:
    if isinstance(step, tuple):  # of a revert: a table and why
        return {"table": str(step[0]), "action": "conflict", "reason": step[1]}
    if isinstance(step, str):
        return {"table": step, "action": "moved", "reason": None}
    return {"table": str(step.table), "action": step.action, "reason": step.reason}


def _plain(text: str) -> str:
    """Return a text that UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()
