"""Tokens: who may ask, made and revoked by whoever has one of scope admin; and what one's own may do."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, StringConstraints

from runnel import __version__
from runnel.errors import Conflict
from runnel.lake.control import tokens as kept
from runnel.service.api.dependencies import Caller, LakeHere, StoreHere
from runnel.service.api.pagination import Page, whole
from runnel.service.api.parameters import Body, Name, Ref
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["tokens"])
Pattern = Annotated[str, StringConstraints(pattern=r"^[a-z*][a-z0-9_*]{0,62}\.[a-z*][a-z0-9_*]{0,62}$")]


class TokenShown(BaseModel):
    """A token without its text. A limited one has the `tables` or the `branch` that it is for."""

    token: str
    scope: str = Field(description="read, write or admin")
    tables: list[str] | None
    branch: str | None
    made_at: str
    revoked_at: str | None


class TokenMade(TokenShown):
    """A token with its text, which is never shown again."""

    secret: str


class Own(TokenShown):
    """The token that asks, and what it opens."""

    project: str
    version: str


class NewToken(Body):
    """A token to make; `tables` and `branch` limit one of scope read."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$")]
    scope: Literal["read", "write", "admin"] = "read"
    tables: Annotated[list[Pattern], Field(min_length=1, max_length=100)] | None = Field(
        default=None, examples=[["dws.*"]]
    )
    branch: Ref | None = None


@router.get("/token", response_model=Own, summary="Show the token that asks", responses=problems())
def own(lake: LakeHere, caller: Caller) -> dict[str, Any]:
    """Return what the token that came with the request may do, and of which project."""
    return {**caller.json(), "project": lake.settings.name, "version": __version__}


@router.get("/tokens", response_model=Page[TokenShown], summary="List tokens", responses=problems())
def tokens(store: StoreHere) -> dict[str, Any]:
    """Return all tokens by name, those that were revoked too. Needs scope admin."""
    return whole([one.json() for one in store.db.read(kept.tokens)])


@router.post(
    "/tokens", status_code=201, response_model=TokenMade, summary="Make a token", responses=problems(400, 404, 413)
)
def make(store: StoreHere, body: NewToken) -> dict[str, Any]:
    """Make a token; its text is in this answer, and nowhere else. Needs scope admin."""
    tables = tuple(body.tables) if body.tables is not None else None
    secret = kept.create(store.db, body.name, body.scope, tables=tables, branch=body.branch)
    made = store.db.read(lambda connection: kept.find(connection, body.name))
    return {**made.json(), "secret": secret}


@router.delete("/tokens/{name}", response_model=TokenShown, summary="Revoke a token", responses=problems(404, 409))
def revoke(store: StoreHere, caller: Caller, name: Name) -> dict[str, Any]:
    """Let a token open nothing any more. Needs scope admin; the token that asks can't revoke itself."""
    if name == caller.name:
        what = f"`{name}` is the token that asks"
        raise Conflict("TOKEN_OWN", what, fix="ask with another, so that you are not locked out by mistake")
    return kept.revoke(store.db, name).json()
