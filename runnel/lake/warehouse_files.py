"""Access to the files of a warehouse, without the catalog: what a piece of work needs on another machine."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.io import FileIO


class FileAccess(Protocol):
    """Whatever reads and writes files of a warehouse: the store of a lake, or `WarehouseFiles`."""

    @property
    def io(self) -> "FileIO":
        """Return the reader and writer of files."""

    @property
    def warehouse(self) -> str:
        """Return the location of the warehouse."""


@dataclass(frozen=True)
class WarehouseFiles:
    """The files of a warehouse; can be pickled. `storage` has the settings of an object store, also its secrets."""

    warehouse: str
    storage: "Mapping[str, str]" = field(default_factory=dict, repr=False)

    @cached_property
    def io(self) -> "FileIO":
        """Return the reader and writer of files."""
        from runnel.lake.iceberg.file_io import open_file_io

        return open_file_io(self.warehouse, dict(self.storage))

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: the reader and writer is opened where the work is done."""
        return {"warehouse": self.warehouse, "storage": dict(self.storage)}
