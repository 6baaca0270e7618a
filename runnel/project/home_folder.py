"""Keep the project's folder `.runnel` readable for its owner only: it holds the catalog, a token, logs and data.

A catalog or a warehouse elsewhere keeps the permissions that its folder gives it.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Mistake
from runnel.private_files import create_private_folder, restrict_folder

if TYPE_CHECKING:
    from runnel.declare.settings import Settings


def restrict_home(settings: "Settings") -> None:
    """Take all permissions of other users away from an existing folder `.runnel`; costs one call if it has none."""
    restrict_folder(settings.home.resolve(), unchanged_below=Path(settings.warehouse))


def prepare_home(settings: "Settings") -> None:
    """Create the folder `.runnel` if the lake is in it; raise if it belongs to another user."""
    home, warehouse = settings.home.resolve(), Path(settings.warehouse)
    if not warehouse.is_relative_to(home) and not settings.catalog.startswith(f"sqlite:///{home}/"):
        return
    create_private_folder(home)
    try:
        os.scandir(home).close()
    except PermissionError as error:
        raise _foreign_folder_error(home) from error
    if warehouse.is_relative_to(home):
        create_private_folder(warehouse)


def _foreign_folder_error(home: Path) -> Mistake:
    what = f"the lake in {home} is readable for its owner only"
    fix = (
        "use a copy of the project of your own; people share a lake with a catalog in PostgreSQL "
        "and a warehouse in a folder or a bucket that all of them can use"
    )
    return Mistake("LAKE_NOT_YOURS", what, fix=fix)
