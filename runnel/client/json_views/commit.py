"""Commits and branches and tags as JSON."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel.lake.history.branches import Branch
    from runnel.lake.history.commits import Commit, CommitChange
    from runnel.lake.history.tags import Tag


def commit_json(commit: "Commit", tables: list[str]) -> dict[str, Any]:
    """Return a commit."""
    return {
        "commit": commit.id,
        "seq": commit.seq,
        "line": commit.line,
        "branch": commit.branch,
        "parent": commit.parent,
        "merged": commit.merged,
        "kind": commit.kind,
        "message": commit.message,
        "author": commit.author,
        "at": commit.at,
        "run": commit.run,
        "expired": commit.expired_at is not None,
        "expired_at": commit.expired_at,
        "tables": tables,
    }


def commit_detail_json(commit: "Commit", changes: "Iterable[CommitChange]") -> dict[str, Any]:
    """Return a commit with its change of each table."""
    change_items = [
        {
            "table": str(change.table),
            "before": change.before,
            "after": change.after,
            "content": change.content,
            "detail": dict(change.detail),
        }
        for change in changes
    ]
    return {**commit_json(commit, [str(change["table"]) for change in change_items]), "changes": change_items}


def task_result_json(detail: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return how a task computed a table for a commit; empty if no task did."""
    if detail is None or "key" not in detail:
        return {}
    return {"made": {name: detail.get(name) for name in ("action", "reason", "run", "rows", "code_id")}}


def branch_json(branch: "Branch") -> dict[str, Any]:
    """Return a branch."""
    return {
        "branch": branch.name,
        "line": branch.line,
        "head": branch.head,
        "created_at": branch.created_at,
        "author": branch.author,
        "from": branch.from_commit,
    }


def tag_json(tag: "Tag") -> dict[str, Any]:
    """Return a tag."""
    return {"tag": tag.name, "commit": tag.commit, "author": tag.author, "at": tag.at}
