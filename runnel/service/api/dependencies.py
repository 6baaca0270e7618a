"""FastAPI dependencies of the routes: the service's lake, and the caller's token."""

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from runnel.client.lake import Lake
from runnel.lake.control.tokens import Token
from runnel.lake.store import Store
from runnel.service.api.middleware.authentication import get_caller

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


class AuthoredStore(Store):
    """The lake's store with a token's name as the author of its commits."""

    def __init__(self, store: Store, author: str) -> None:
        super().__init__(store.db, store.warehouse, author, store.storage)
        self._base_store = store

    @property
    def io(self) -> "FileIO":
        """Return the reader and writer that all requests share."""
        return self._base_store.io


async def _get_lake(request: Request) -> Lake:
    lake = request.app.state.lake
    assert isinstance(lake, Lake)
    return lake


async def _get_store(request: Request) -> Store:
    return AuthoredStore((await _get_lake(request)).store, get_caller(request).name)


async def _get_caller(request: Request) -> Token:
    return get_caller(request)


LakeDependency = Annotated[Lake, Depends(_get_lake)]
StoreDependency = Annotated[Store, Depends(_get_store)]
Caller = Annotated[Token, Depends(_get_caller)]
