"""Answers of a service to queries: Arrow batches as they come, with exact types."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from runnel.errors import Unreachable
from runnel.query.arrow_stream import MEDIA_TYPE, Received
from runnel.query.result import Result

if TYPE_CHECKING:
    from runnel.client.remote.connection import Connection


def answer(connection: "Connection", asked: Mapping[str, Any], begun: float) -> Result:
    """Ask a query, and return the answer, of which all but the first rows are still to come."""
    found = connection.ask("POST", "/query", json=dict(asked), headers={"Accept": MEDIA_TYPE}, stream=True)

    def cut(error: Exception) -> Unreachable:
        what = f"{connection.url} stopped in the middle of the answer"
        return Unreachable("REMOTE_CUT", what, fix="ask again")

    stream = Received(found.raw, found.close, cut)
    return Result(stream, at=stream.at, begun=begun, reason=stream.reason, hand_over=_never)


def _never(reason: str) -> NoReturn:
    raise AssertionError(reason)
