"""Run queries on a service and stream the answer as Arrow batches with exact types."""

from typing import TYPE_CHECKING, NoReturn

from runnel.errors import Unreachable
from runnel.query.arrow_stream import MEDIA_TYPE, ReceivedStream
from runnel.query.result import QueryResult

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection
    from runnel.model.worker_request import QueryRequest


def run_query(connection: "ServiceConnection", request: "QueryRequest", started: float) -> QueryResult:
    """Run a query, and return its result; rows after the first batch are fetched when they are read."""
    response = connection.send("POST", "/query", json=request.to_body(), headers={"Accept": MEDIA_TYPE}, stream=True)

    def cut_off_error(_error: Exception) -> Unreachable:
        what = f"{connection.url} closed the connection in the middle of the answer"
        return Unreachable("REMOTE_CUT", what, fix="run the query again")

    stream = ReceivedStream(response.raw, response.close, cut_off_error)
    return QueryResult(stream, at=stream.at, started_at=started, reason=stream.reason, switch_to_spark=_refuse_handover)


def _refuse_handover(reason: str) -> NoReturn:
    raise AssertionError(reason)
