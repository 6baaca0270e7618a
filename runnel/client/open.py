"""`rn.open`: find a project and open its lake."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.client.remote.lake import RemoteLake


@overload
def open(place: str, *, token: str, overrides: Sequence[str] = ()) -> "RemoteLake": ...


@overload
def open(place: str | Path = ".", *, env: str | None = None, overrides: Sequence[str] = ()) -> "Lake": ...


def open(
    place: str | Path = ".", *, env: str | None = None, overrides: Sequence[str] = (), token: str | None = None
) -> "Lake | RemoteLake":
    """Open the lake of the project in a folder, or the one behind a service: `http://...` or `https://...`.

    `env` overrides `runnel.toml` with `runnel.ENV.toml`; `overrides` are like `--set name=value`. A service needs a
    `token`; by default it is read from `RUNNEL_TOKEN`, or from the `runnel up` of the project in the current folder.
    """
    from runnel.client.lake import Lake
    from runnel.declare.settings import find_root, load_settings

    if "://" in str(place):
        from runnel.client.remote.lake import RemoteLake

        if env is not None:
            what = "`env` chooses the settings of a folder; a service has its own"
            raise Mistake("OPEN_ENV", what, fix="leave env out")
        return RemoteLake(str(place), token, overrides)
    if token is not None:
        raise Mistake("OPEN_TOKEN", f"{place} is a folder, which needs no token", fix="leave token out")
    root = find_root(Path(place))
    return Lake(load_settings(root, env=env, environ=os.environ, overrides=overrides))
