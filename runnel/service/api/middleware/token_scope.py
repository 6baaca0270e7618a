"""Check requests of tokens that are limited to some tables or one branch. What can't be proven allowed is refused.

Such a token may use only the paths listed here. The tables and versions that a path names are checked before the
request reaches a route; those of a SQL query are checked by its route.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from runnel.errors import Mistake
from runnel.lake.history.commits import walk_lines
from runnel.lake.history.refs import read_head, resolve_ref
from runnel.names import looks_like_commit, quote_value
from runnel.service.api.parameters import API_PREFIX

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database
    from runnel.lake.control.tokens import Token
    from runnel.lake.history.commits import Commit

_GENERAL_PATHS = re.compile(rf"/openapi\.json|{API_PREFIX}/(token|tables|query)")
_TABLE_PATHS = re.compile(
    rf"{API_PREFIX}/(?:tables/(?P<table>[^/]+)(?:/(?:rows|checks))?|files/(?P<files>[^/]+)(?:/.*)?)"
)
_CODE = "TOKEN_LIMITED"


def check_path(db: "Database", token: "Token", method: str, path: str, query: str) -> None:
    """Refuse paths, tables and versions beyond a token's limits; its scope is checked elsewhere."""
    if not token.is_limited:
        return
    match = _TABLE_PATHS.fullmatch(path)
    if match is None and not _GENERAL_PATHS.fullmatch(path):
        what = f"the token `{token.name}` may only see {_describe_limits(token)}, and this request covers more"
        raise Mistake(_CODE, what, fix="use a token without limits")
    if match is not None:
        check_tables(token, [match["table"] or match["files"]])
    if method == "GET" and path.startswith(f"{API_PREFIX}/") and path != f"{API_PREFIX}/token":
        refs = parse_qs(query, keep_blank_values=True).get("at") or ["main"]
        for ref in refs:
            db.read(partial(check_ref, token=token, ref=ref))


def check_tables(token: "Token", tables: Iterable[str]) -> None:
    """Refuse tables beyond a token's limits."""
    forbidden = [table for table in tables if not token.can_see_table(table)]
    if forbidden:
        what = f"the token `{token.name}` may only see {_describe_limits(token)}, not {quote_value(forbidden[0])}"
        raise Mistake(_CODE, what, fix="request those, or use another token")


def check_ref(connection: "Connection", token: "Token", ref: str) -> None:
    """Refuse versions that don't belong to the token's branch.

    Tags are refused: a tag may be moved between this check and the read.
    """
    branch_name = token.branch
    if branch_name is None:
        return
    head_commit = read_head(connection, branch_name)  # raises if the branch was deleted: a tag may have its name now
    if ref == branch_name or ref.startswith((f"{branch_name}~", f"{branch_name}@")):
        return
    if looks_like_commit(ref) and _is_ancestor(connection, ref, head_commit):
        return
    what = f"the token `{token.name}` may only see {_describe_limits(token)}, not {quote_value(ref)}"
    raise Mistake(_CODE, what, fix=f"request at={branch_name}, or a commit of that branch by its id")


def _is_ancestor(connection: "Connection", commit_id: str, head_commit: "Commit") -> bool:
    """Tell whether the start of a commit's id names one that a branch has; what else it names is not said."""
    try:
        commit = resolve_ref(connection, commit_id)
    except Mistake:
        return False
    ancestors = walk_lines(connection, head_commit.line, head_commit.seq)
    return commit.id.startswith(commit_id) and any(commit.line == line and commit.seq <= seq for line, seq in ancestors)


def _describe_limits(token: "Token") -> str:
    tables = f"the tables {', '.join(token.tables)}" if token.tables else "all tables"
    return f"{tables} of branch {token.branch}" if token.branch else tables
