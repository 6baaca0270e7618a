"""What a route works on: the lake of the service, on behalf of whoever asks."""

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from runnel.client.lake import Lake
from runnel.lake.control.tokens import Token
from runnel.lake.store import Store
from runnel.service.api.middleware.authentication import caller

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


class Acting(Store):
    """The lake's handle under the name of a token, to which what it does is ascribed."""

    def __init__(self, store: Store, author: str) -> None:
        super().__init__(store.db, store.warehouse, author, store.storage)
        self._of = store

    @property
    def io(self) -> "FileIO":
        """Return the reader and writer that all requests share."""
        return self._of.io


async def _lake(request: Request) -> Lake:
    found = request.app.state.lake
    assert isinstance(found, Lake)
    return found


async def _store(request: Request) -> Store:
    return Acting((await _lake(request)).store, caller(request).name)


async def _caller(request: Request) -> Token:
    return caller(request)


LakeHere = Annotated[Lake, Depends(_lake)]
StoreHere = Annotated[Store, Depends(_store)]
Caller = Annotated[Token, Depends(_caller)]
