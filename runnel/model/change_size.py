"""The size of a table version, and of a change between two."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChangeSize:
    """How a table changed between two versions: the rows in files that were added and removed.

    `is_known` is false if the older version no longer exists. Rewritten files count on both sides.
    """

    rows_added: int = 0
    files_added: int = 0
    rows_removed: int = 0
    files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    deletes: bool = False  # delete files were added or removed
    columns_added: tuple[str, ...] = ()
    columns_changed: bool = False  # a column was removed, renamed or retyped
    is_known: bool = True
    is_recreated: bool = False  # another table of the same name: its columns can't be matched to the earlier ones


@dataclass(frozen=True)
class VersionSize:
    """The size of a table version."""

    rows: int
    bytes: int
    files: int
