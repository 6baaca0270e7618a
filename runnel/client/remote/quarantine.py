"""Rows that a service has set aside."""

from typing import TYPE_CHECKING

from runnel.client.remote.json_values import moment_of
from runnel.connect.load.quarantine import Aside
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.remote.connection import Connection


def rows_aside(connection: "Connection", table: str, branch: str, file: str | None) -> list[Aside]:
    """Return the rows of a table that are set aside, the oldest first."""
    found, offset = list[Aside](), "0"
    while True:
        where = f"/quarantine/{TableName.parse(table)}"
        page = connection.get(where, branch=branch, file=file, offset=offset, limit=1000)
        for one in page["rows"]:
            at = moment_of(one["at"])
            found.append(Aside(one["raw"], one["reason"], one["file"], one["run"], at))  # type: ignore[arg-type]
        if page["next"] is None:
            return found
        offset = page["next"]
