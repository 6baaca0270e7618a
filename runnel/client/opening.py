"""`rn.open`: find a project and open its lake."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.client.lake import Lake


def open(place: str | Path = ".", *, env: str | None = None, overrides: Sequence[str] = ()) -> "Lake":
    """Open the lake of the project in a folder.

    `env` lays `runnel.ENV.toml` over `runnel.toml`; `overrides` are like `--set name=value`.
    """
    from runnel.client.lake import Lake
    from runnel.declare.settings import find_root, load

    if str(place).startswith(("http://", "https://")):
        raise Mistake(
            "OPEN_REMOTE", f"{place} is a service; this version opens project folders only", fix="rn.open('FOLDER')"
        )
    root = find_root(Path(place))
    return Lake(load(root, env=env, environ=os.environ, overrides=overrides))
