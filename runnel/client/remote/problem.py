"""Errors of the service as the errors that an embedded lake raises, and what else a server may answer."""

from collections.abc import Mapping
from typing import Any

import requests

from runnel.errors import Mistake, RunnelError, Unreachable, error_of
from runnel.names import TableName

_PASSING = (502, 503, 504)  # what a proxy answers while the service behind it is away


def raised(url: str, answer: requests.Response) -> RunnelError:
    """Return the error that an answer tells."""
    found = _problem(answer)
    if found is not None:
        return _told(found)
    if answer.status_code in _PASSING:
        what = f"{url} is not there now: {answer.status_code} {answer.reason}"
        return Unreachable("REMOTE_UNREACHABLE", what, fix="`runnel up` starts it")
    return not_runnel(url, f"{answer.status_code} {answer.reason}")


def is_away(answer: requests.Response) -> bool:
    """Tell whether somebody before the service says that it is away."""
    return answer.status_code in _PASSING and _problem(answer) is None


def not_runnel(url: str, told: str) -> Mistake:
    """Return the error for a server that is something else."""
    fix = "check the address: `runnel up` says where it answers"
    return Mistake("REMOTE_NOT_RUNNEL", f"{url} answers, but not as a Runnel service does: {told}", fix=fix)


def _problem(answer: requests.Response) -> Mapping[str, Any] | None:
    if "json" not in answer.headers.get("content-type", ""):
        return None
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"code", "what"} <= set(found) else None


def _told(found: Mapping[str, Any]) -> RunnelError:
    tables = found.get("tables") or ()
    if not tables:
        return error_of(found)
    from runnel.lake.merge.merge import Decision  # it also knows the errors that tell of tables

    error = error_of(found)
    steps = tuple(Decision(TableName.stored(one["table"]), one["action"], one["reason"] or "") for one in tables)
    error.tables = tuple(str(one.table) for one in steps) if error.code == "PUBLISH_MOVED" else steps  # type: ignore[attr-defined]
    return error
