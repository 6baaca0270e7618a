"""Convert error responses of the service to the errors that an embedded lake raises."""

from collections.abc import Mapping
from typing import Any

import requests

from runnel.errors import Mistake, RunnelError, Unreachable, error_from_json
from runnel.names import TableName

UNREACHABLE_CODE = "REMOTE_UNREACHABLE"  # of errors that mean that the service is not there now
_GATEWAY_STATUSES = (502, 503, 504)  # responses of a proxy while the service behind it is unreachable


def build_error(url: str, response: requests.Response) -> RunnelError:
    """Return the error for an error response."""
    problem = _parse_problem(response)
    if problem is not None:
        return _build_problem_error(problem)
    if response.status_code in _GATEWAY_STATUSES:
        what = f"{url} is unavailable: {response.status_code} {response.reason}"
        return Unreachable(UNREACHABLE_CODE, what, fix="`runnel up` starts it")
    return not_runnel_error(url, f"{response.status_code} {response.reason}")


def not_runnel_error(url: str, description: str) -> Mistake:
    """Return the error for a server that is not a Runnel service."""
    fix = "check the address: `runnel up` prints the address of the service"
    return Mistake("REMOTE_NOT_RUNNEL", f"{url} answers, but not as a Runnel service does: {description}", fix=fix)


def _parse_problem(response: requests.Response) -> Mapping[str, Any] | None:
    if "json" not in response.headers.get("content-type", ""):
        return None
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) and {"code", "what"} <= set(body) else None


def _build_problem_error(problem: Mapping[str, Any]) -> RunnelError:
    tables = problem.get("tables") or ()
    if not tables:
        return error_from_json(problem)
    from runnel.lake.merge.merge_plan import MergeDecision

    error = error_from_json(problem)
    steps = tuple(
        MergeDecision(TableName.parse_unchecked(step["table"]), step["action"], step["reason"] or "") for step in tables
    )
    error.tables = tuple(str(step.table) for step in steps) if error.code == "PUBLISH_MOVED" else steps  # type: ignore[attr-defined]
    return error
