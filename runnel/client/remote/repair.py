"""Rewind a source and release quarantined rows behind a service: a worker does it."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from runnel.client.remote.json_values import parse_commit
from runnel.client.remote.quarantine import parse_quarantined_row
from runnel.connect.ingest.release.release import ReleaseResult
from runnel.connect.ingest.release.release_files import StillBadRow
from runnel.errors import Mistake
from runnel.lake.merge.rewind import RewindResult
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection
    from runnel.lake.history.commits import Commit

_MAX_NAME_LENGTH = 60
_MAX_BAD_ROWS = 1000  # rows that are still bad, of which the service sends the details


def rewind(connection: "ServiceConnection", source: str, to: str, branch: str, *, dry_run: bool) -> RewindResult:
    """Reset a source's table and position to a ref."""
    body = {"to": to, "branch": branch, "dry_run": dry_run}
    answer = connection.post(f"/sources/{TableName.parse(source)}/rewind", body)
    return RewindResult(
        TableName.parse_unchecked(answer["table"]),
        parse_commit(connection.get(f"/commits/{answer['to']}")),
        answer["files"],
        answer["state"],
        answer["drops"],
        _fetch_commit(connection, answer),
    )


def release(
    connection: "ServiceConnection", table: str, corrected: Path | None, *, file: str | None, branch: str
) -> ReleaseResult:
    """Ingest quarantined rows again, as they are or as a file corrects them."""
    if corrected is not None and not corrected.is_file():
        raise Mistake("RELEASE_NO_FILE", f"there is no file {corrected}", fix="name the file with the corrected rows")
    name = (corrected.name[-_MAX_NAME_LENGTH:].lstrip(".") or None) if corrected is not None else None
    response = connection.send(
        "POST",
        f"/quarantine/{quote(str(TableName.parse(table)))}/release",
        params={"branch": branch, "file": file, "name": name, "limit": _MAX_BAD_ROWS},
        data=corrected.read_bytes if corrected is not None else None,
        headers={"Content-Type": "application/octet-stream", "Idempotency-Key": secrets.token_urlsafe(24)},
    )
    answer = response.json()
    still_bad = tuple(StillBadRow(parse_quarantined_row(row), row["line"]) for row in answer["still_bad"])
    return ReleaseResult(
        answer["rows"],
        answer["taken"],
        answer["bad"],
        _fetch_commit(connection, answer),
        still_bad,
        answer["missing"],
        answer["unknown"],
    )


def _fetch_commit(connection: "ServiceConnection", answer: dict[str, Any]) -> "Commit | None":
    return parse_commit(connection.get(f"/commits/{answer['commit']}")) if answer["commit"] else None
