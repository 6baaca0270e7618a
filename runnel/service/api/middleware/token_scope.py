"""Tokens for some tables, or one branch, only. What can't be told to be within that is refused.

Everything is closed to such a token but for the paths here. The tables and versions that a path names are looked at
before the request reaches anything; those of a query are looked at by its route.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from runnel.errors import Mistake
from runnel.lake.history.branches import branch
from runnel.lake.history.commits import path as history
from runnel.lake.history.refs import head, resolve
from runnel.names import looks_like_commit, shown
from runnel.service.api.parameters import PREFIX

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database
    from runnel.lake.control.tokens import Token

_ALL = re.compile(rf"/openapi\.json|{PREFIX}/(token|tables|query)")
_OF_A_TABLE = re.compile(rf"{PREFIX}/(?:tables/(?P<table>[^/]+)(?:/(?:rows|checks))?|files/(?P<files>[^/]+)(?:/.*)?)")
_CODE = "TOKEN_LIMITED"


def check_path(db: "Database", token: "Token", method: str, path: str, query: str) -> None:
    """Refuse what a limited token may not ask for; its scope is for others to look at."""
    if not token.is_limited:
        return
    found = _OF_A_TABLE.fullmatch(path)
    if found is None and not _ALL.fullmatch(path):
        what = f"the token `{token.name}` may only see {_within(token)}, and this tells of more"
        raise Mistake(_CODE, what, fix="use a token without limits")
    if found is not None:
        check_tables(token, [found["table"] or found["files"]])
    if method == "GET" and path.startswith(f"{PREFIX}/") and path != f"{PREFIX}/token":
        refs = parse_qs(query, keep_blank_values=True).get("at") or ["main"]
        for ref in refs:
            db.read(partial(check_ref, token=token, ref=ref))


def check_tables(token: "Token", tables: Iterable[str]) -> None:
    """Refuse tables that a token is not for."""
    wrong = [table for table in tables if not token.may_see(table)]
    if wrong:
        what = f"the token `{token.name}` may only see {_within(token)}, not {shown(wrong[0])}"
        raise Mistake(_CODE, what, fix="ask for those, or use another token")


def check_ref(connection: "Connection", token: "Token", ref: str) -> None:
    """Refuse versions that are not of the branch that a token is for.

    A tag is refused: it may be moved before it is read.
    """
    name = token.branch
    if name is None or ref == name or ref.startswith((f"{name}~", f"{name}@")):
        return
    if looks_like_commit(ref):
        commit = resolve(connection, ref)
        last = head(connection, branch(connection, name).name)
        behind = history(connection, last.line, last.seq)
        if commit.id.startswith(ref) and any(commit.line == line and commit.seq <= seq for line, seq in behind):
            return
    what = f"the token `{token.name}` may only see {_within(token)}, not {shown(ref)}"
    raise Mistake(_CODE, what, fix=f"ask for at={name}, or for a commit of that branch by its id")


def _within(token: "Token") -> str:
    tables = f"the tables {', '.join(token.tables)}" if token.tables else "all tables"
    return f"{tables} of branch {token.branch}" if token.branch else tables
