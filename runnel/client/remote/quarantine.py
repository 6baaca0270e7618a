"""Fetch quarantined rows from a service, and discard them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runnel.client.remote.json_values import parse_commit, parse_time
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.names import TableName
from runnel.project.execution.release import DiscardResult

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection


def fetch_quarantined_rows(
    connection: "ServiceConnection", table: str, branch: str, file: str | None
) -> list[QuarantinedRow]:
    """Return the quarantined rows of a table, the oldest first."""
    rows, offset = list[QuarantinedRow](), "0"
    while True:
        url_path = f"/quarantine/{TableName.parse(table)}"
        page = connection.get(url_path, branch=branch, file=file, offset=offset, limit=1000)
        rows += [parse_quarantined_row(row) for row in page["rows"]]
        if page["next"] is None:
            return rows
        offset = page["next"]


def parse_quarantined_row(body: Mapping[str, Any]) -> QuarantinedRow:
    """Return a quarantined row."""
    return QuarantinedRow(body["raw"], body["reason"], body["file"], body["run"], parse_time(body["at"]))  # type: ignore[arg-type]


def discard_quarantined_rows(
    connection: "ServiceConnection", table: str, branch: str, file: str | None
) -> DiscardResult:
    """Remove the quarantined rows of a table in one commit."""
    answer = connection.delete(f"/quarantine/{TableName.parse(table)}", branch=branch, file=file)
    return DiscardResult(answer["rows"], parse_commit(connection.get(f"/commits/{answer['commit']}")))
