"""Send errors as `application/problem+json`, with the same codes and messages as the command line."""

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

from runnel.errors import Conflict, Mistake, RunnelError, Unreachable, VersionConflict, find_disk_full

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("runnel.api")
MEDIA_TYPE = "application/problem+json"
_JSON = "application/json"
_STATUSES = {
    "TOKEN_LIMITED": 403,
    "FILES_NO_MATCH": 404,
    "LOG_MISSING": 404,
    "DATABASE_MISSING": 503,
    "DATABASE_LOGIN": 503,
    "SQL_FAILED": 422,
    "SQL_TIMEOUT": 422,
    "DIFF_TOO_LARGE": 422,
    "EVENTS_MALFORMED": 422,
    "EVENTS_TOO_LARGE": 413,
    "FILES_TOO_LARGE": 413,
    "EVENTS_MEDIA_TYPE": 415,
    "RELEASE_MEDIA_TYPE": 415,
}
_CODES = {400: "REQUEST_INVALID", 404: "PATH_UNKNOWN", 405: "METHOD_NOT_ALLOWED", 413: "REQUEST_TOO_LARGE"}
_COMMON_STATUSES = (401, 403, 422, 500, 503)
_MEANINGS = {
    304: "Nothing has changed since the `ETag` of `If-None-Match`",
    400: "The request can't be read",
    401: "No token, or an unknown one",
    403: "The token may not do this",
    404: "Nothing has that name",
    409: "The request conflicts with the current state",
    413: "The request is too large",
    415: "The media type is not supported",
    416: "The file has none of the requested bytes",
    422: "The request is invalid",
    500: "A defect of the service; the trace is in its log",
    503: "A required system does not answer",
}


class FieldErrorView(BaseModel):
    """One field of a request that is wrong."""

    field: str = Field(examples=["query.limit"])
    what: str


class BlockedTableView(BaseModel):
    """A table that blocks a merge, or must be computed for it."""

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
    kind: str = Field(description="The class of the error in Python", examples=["Mistake"])
    exit_code: int = Field(description="The exit code of a command that fails with this error")
    errors: list[FieldErrorView] = Field(default=[], description="All invalid fields, if the request is invalid")
    tables: list[BlockedTableView] = Field(default=[], description="The tables that block a merge")


class _InvalidRequest(Mistake):
    """A request that does not match the OpenAPI document."""

    def __init__(
        self, what: str, fields: list[dict[str, str]], fix: str = "/openapi.json describes each request"
    ) -> None:
        super().__init__("REQUEST_INVALID", what, fix=fix)
        self.fields = fields


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI documentation of a route's errors: the common ones and its own."""
    responses: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*_COMMON_STATUSES, *statuses}):
        responses[status] = {"description": _MEANINGS[status]}
        if status >= 400:
            responses[status]["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return responses


def choose_status(error: RunnelError) -> int:
    """Return the HTTP status of an error.

    >>> choose_status(Mistake("BRANCH_UNKNOWN", "there is no branch `x`")), choose_status(Mistake("NAME_TAG", "no"))
    (404, 422)
    """
    if error.code in _STATUSES:
        return _STATUSES[error.code]
    if error.code.endswith("_NEEDS_SPARK"):
        return 422
    if isinstance(error, Mistake):
        return 404 if error.code.endswith("_UNKNOWN") else 422
    if isinstance(error, Conflict | VersionConflict):
        return 409
    return 503 if isinstance(error, Unreachable) else 500


def to_problem_response(
    error: RunnelError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error as a problem JSON response."""
    status = status or choose_status(error)
    body: dict[str, Any] = {
        "type": f"urn:runnel:error:{error.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": f"{error.what}; {error.fix}" if error.fix else error.what,
        **error.to_json_with_kind(),
    }
    if isinstance(error, _InvalidRequest):
        body["errors"] = error.fields
    if steps := getattr(error, "tables", None):
        body["tables"] = [_blocked_to_json(step) for step in steps]
    return JSONResponse(body, status, headers=headers, media_type=MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Make an app answer all its errors as problem JSON."""
    app.add_exception_handler(RunnelError, _handle_runnel_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(HTTPException, _handle_http_error)


class UnexpectedErrorMiddleware:
    """Answers unexpected errors with status 500: the log gets the trace once, and the answer refers to the log."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on; if its response has already started when an error occurs, the response is cut off."""
        has_begun = False

        async def send_noted(message: "Message") -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception as error:
            LOG.error("%s %s failed unexpectedly", scope.get("method"), scope.get("path"), exc_info=error)
            if scope["type"] == "http" and not has_begun:
                defect = RunnelError(
                    "INTERNAL",
                    "the service failed unexpectedly",
                    fix="this is a defect of Runnel; the trace is in the service's log",
                )
                disk_full_error = find_disk_full(error)
                answer = (
                    to_problem_response(disk_full_error)
                    if disk_full_error is not None
                    else to_problem_response(defect, 500)
                )
                await answer(scope, receive, send)


def _handle_runnel_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RunnelError)
    if choose_status(error) >= 500:
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    caller = getattr(request.state, "caller", None)
    if caller is not None and caller.is_limited:  # a near miss must not reveal names that the token may not see
        hide_near_miss(error)
    return to_problem_response(error)


def hide_near_miss(error: RunnelError) -> None:
    """Remove the nearest correct name from an error's text."""
    error.what = error.what.partition("; close: ")[0]


def _handle_invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields = [
        {"field": _format_field(field_error["loc"]), "what": str(field_error["msg"])} for field_error in error.errors()
    ]
    what = "; ".join(f"`{field_error['field']}`: {field_error['what']}" for field_error in fields[:5])
    if any(field_error["field"] == "body" for field_error in fields) and not _is_json(request):
        other = request.headers.get("content-type")
        what = f"the header `Content-Type: {_JSON}` is missing" + (f"; the request has `{other}`" if other else "")
        fix = f"send it with the body: curl -H 'Content-Type: {_JSON}'"
        return to_problem_response(_InvalidRequest(_replace_surrogates(what), fields, fix))
    return to_problem_response(_InvalidRequest(_replace_surrogates(what), fields))


def _is_json(request: Request) -> bool:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == _JSON or media_type.endswith("+json")


def _handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer errors of the framework: unknown paths and methods, unreadable bodies."""
    assert isinstance(error, HTTPException)
    messages = {404: "there is nothing at this path", 405: f"{request.method} is not possible here"}
    what = messages.get(error.status_code, str(error.detail))
    fix = "/openapi.json lists all paths" if error.status_code in (404, 405) else None
    code = _CODES.get(error.status_code, "REQUEST_INVALID")
    headers = {"Allow": ", ".join(_allowed_methods(request))} if error.status_code == 405 else error.headers
    return to_problem_response(RunnelError(code, what, fix=fix), error.status_code, headers)


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods that a path supports, over all routes."""
    routes = request.app.router.routes
    scopes = {method: {**request.scope, "method": method} for method in ("DELETE", "GET", "POST", "PUT")}
    return [
        method for method, scope in scopes.items() if any(route.matches(scope)[0] == Match.FULL for route in routes)
    ]


def _format_field(location: tuple[int | str, ...]) -> str:
    return _replace_surrogates(".".join(str(part) for part in location))


def _blocked_to_json(step: Any) -> dict[str, Any]:
    if isinstance(step, tuple):  # of a revert: the table and the reason
        return {"table": str(step[0]), "action": "conflict", "reason": step[1]}
    if isinstance(step, str):
        return {"table": step, "action": "moved", "reason": None}
    return {"table": str(step.table), "action": step.action, "reason": step.reason}


def _replace_surrogates(text: str) -> str:
    """Return the text with everything replaced that UTF-8 can't encode."""
    return text.encode("utf-8", "replace").decode()
