"""Routes for tokens: list, create, rotate and revoke, with scope admin; and what the caller's own token may do."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, StringConstraints

from runnel import __version__
from runnel.declare.options.duration import parse_duration
from runnel.errors import Conflict
from runnel.lake.control import tokens as catalog_tokens
from runnel.service.api.dependencies import Caller, LakeDependency, StoreDependency
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.parameters import NO_NUL, NamePath, Ref, RequestBody
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["tokens"])
TablePattern = Annotated[str, StringConstraints(pattern=r"^[a-z*][a-z0-9_*]{0,62}\.[a-z*][a-z0-9_*]{0,62}$")]
Expiry = Annotated[
    str,
    StringConstraints(min_length=1, max_length=40, pattern=NO_NUL),
    Field(description="When it expires: a duration, a day or a time in UTC, or `never`.", examples=["30d"]),
]
SourceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}\.[a-z][a-z0-9_]{0,62}$")]


class TokenView(BaseModel):
    """A token without its text. `tables` and `branch` are its limits, if it has any; `sources` those of scope push."""

    token: str
    id: str = Field(description="Never used again, unlike the name")
    scope: str = Field(description="push, read, write or admin")
    tables: list[str] | None
    branch: str | None
    sources: list[str] | None
    made_at: str
    revoked_at: str | None
    expires_at: str | None
    last_used_at: str | None = Field(description="Recorded at most once a minute")
    previous_until: str | None = Field(description="Until when the text before the last rotation is accepted")


class NewTokenView(TokenView):
    """A token with its text, which is never shown again."""

    secret: str


class OwnTokenView(TokenView):
    """The caller's token, with the project and the version of the service."""

    project: str
    version: str


class NewToken(RequestBody):
    """A token to create; `tables` and `branch` limit a token of scope read, scope push needs `sources`."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$")]
    scope: Literal["push", "read", "write", "admin"] = "read"
    tables: Annotated[list[TablePattern], Field(min_length=1, max_length=100)] | None = Field(
        default=None, examples=[["dws.*"]]
    )
    branch: Ref | None = None
    sources: Annotated[list[SourceName], Field(min_length=1, max_length=100)] | None = Field(
        default=None, examples=[["ods.events"]]
    )
    expires: Expiry = catalog_tokens.DEFAULT_EXPIRY


class TokenRotation(RequestBody):
    """How to rotate a token: how long its previous text is accepted, and when it expires if that changes."""

    grace: Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=NO_NUL)] = Field(
        default="0s", examples=["1h"]
    )
    expires: Expiry | None = None


@router.get(
    "/token", response_model=OwnTokenView, summary="Show the token of this request", responses=error_responses()
)
def show_own_token(lake: LakeDependency, caller: Caller) -> dict[str, Any]:
    """Return what the caller's token may do, and in which project."""
    return {**caller.json(), "project": lake.settings.name, "version": __version__}


@router.get("/tokens", response_model=ListPage[TokenView], summary="List tokens", responses=error_responses())
def list_tokens(store: StoreDependency) -> dict[str, Any]:
    """Return all tokens by name, including revoked ones. Needs scope admin."""
    return build_single_page([token.json() for token in store.db.read(catalog_tokens.list_tokens)])


@router.post(
    "/tokens",
    status_code=201,
    response_model=NewTokenView,
    summary="Create a token",
    responses=error_responses(400, 404, 413),
)
def create_token(store: StoreDependency, body: NewToken) -> dict[str, Any]:
    """Create a token; its text is only in this answer. Needs scope admin."""
    tables = tuple(body.tables) if body.tables is not None else None
    sources = tuple(body.sources) if body.sources is not None else None
    new_token = catalog_tokens.create_token(
        store.db, body.name, body.scope, tables=tables, branch=body.branch, sources=sources, expires=body.expires
    )
    return new_token.json()


@router.post(
    "/tokens/{name}/rotate",
    response_model=NewTokenView,
    summary="Rotate a token",
    responses=error_responses(400, 404, 409, 413),
)
def rotate_token(
    store: StoreDependency, caller: Caller, name: NamePath, body: TokenRotation | None = None
) -> dict[str, Any]:
    """Give a token a new text, which is only in this answer. Needs scope admin.

    The previous text is accepted for the grace period. The caller's own token needs one.
    """
    rotation = body or TokenRotation()
    if name == caller.name and not parse_duration(rotation.grace, code="TOKEN_GRACE"):
        what = f"`{name}` is the token of this request"
        raise Conflict("TOKEN_OWN", what, fix="give a grace period, so that a lost answer does not lock you out")
    return catalog_tokens.rotate(store.db, name, grace=rotation.grace, expires=rotation.expires).json()


@router.delete(
    "/tokens/{name}", response_model=TokenView, summary="Revoke a token", responses=error_responses(404, 409)
)
def revoke_token(store: StoreDependency, caller: Caller, name: NamePath) -> dict[str, Any]:
    """Revoke a token. Needs scope admin; the caller's own token can't be revoked."""
    if name == caller.name:
        what = f"`{name}` is the token of this request"
        raise Conflict("TOKEN_OWN", what, fix="use another token, so that you are not locked out by mistake")
    return catalog_tokens.revoke(store.db, name).json()
