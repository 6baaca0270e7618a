"""The JSON of a rewind and of a release."""

from typing import TYPE_CHECKING, Any

from runnel.project.inspection.quarantine import quarantined_row_json

if TYPE_CHECKING:
    from runnel.connect.ingest.release.release import ReleaseResult
    from runnel.lake.merge.rewind import RewindResult


def rewind_to_json(source: str, result: "RewindResult") -> dict[str, Any]:
    """Return what a rewind did, or would do: `commit` is null then."""
    return {
        "source": source,
        "table": str(result.table),
        "to": result.to.id,
        "commit": result.commit.id if result.commit else None,
        "files": result.files,
        "state": result.has_state,
        "drops": result.drops,
    }


def release_to_json(table: str, result: "ReleaseResult", limit: int | None) -> dict[str, Any]:
    """Return what a release did, with at most `limit` of the rows that are still bad; None means all."""
    visible_rows = result.still_bad[:limit] if limit else result.still_bad
    return {
        "table": table,
        "rows": result.rows,
        "taken": result.accepted,
        "bad": result.bad,
        "missing": result.missing,
        "unknown": result.unknown,
        "still_bad": [{**quarantined_row_json(bad_row.row), "line": bad_row.line} for bad_row in visible_rows],
        "commit": result.commit.id if result.commit else None,
    }
