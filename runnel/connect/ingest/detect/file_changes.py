"""The changes of a source's files: which are read, whose rows are removed, which were only renamed. Pure."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.iceberg.data_file_owners import make_owner_prefix

ProcessedFilesLoader = Callable[[], Mapping[str, ProcessedFile]]
"""Loads the records of all files that were ever read of a source, by path."""
_BY_PATH = ":by path"


@dataclass(frozen=True)
class RowIdentity:
    """Identifies the rows of a file: the same identity means the same rows.

    `digest` is the SHA-256 of the contents; with `includes_path`, of the contents and the path: the rows contain it, or
    the digest does not cover all contents. `read_options` is the fingerprint of how files are read.
    """

    digest: str
    read_options: str
    includes_path: bool = False

    @classmethod
    def of_file(cls, path: str, sha256: str, read_options: str, *, includes_path: bool) -> Self:
        """Return the identity of the rows of a file with these contents."""
        digest = hashlib.sha256(f"{sha256}:{path}".encode()).hexdigest() if includes_path else sha256
        return cls(digest, read_options, includes_path)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return an identity from its text.

        >>> RowIdentity.from_text("d1:v1:by path")
        RowIdentity(digest='d1', read_options='v1', includes_path=True)
        """
        digest, _, read_options = text.partition(":")
        return cls(digest, read_options.removesuffix(_BY_PATH), read_options.endswith(_BY_PATH))

    def to_text(self) -> str:
        """Return the text that the position of the source stores.

        >>> RowIdentity("d1", "v1").to_text(), RowIdentity("d1", "v1", includes_path=True).to_text()
        ('d1:v1', 'd1:v1:by path')
        """
        return f"{self.digest}:{self.read_options}{_BY_PATH if self.includes_path else ''}"

    def has_same_options(self, other: "RowIdentity") -> bool:
        """Tell whether the rows of both are read in the same way."""
        return self.read_options == other.read_options


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, and the identity of its rows.

    `replaces` is the record of what was read before in its place, if any: its rows are removed if the table still has
    them. `owners` are the name prefixes of its data files, see `ProcessedFile.owned`.
    """

    path: str
    size: int
    modified_ns: int
    sha256: str
    row_identity: RowIdentity
    replaces: ProcessedFile | None = None
    owners: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Return the text that identifies its rows, as `ProcessedFile.identity`."""
        return self.row_identity.to_text()

    @property
    def owned(self) -> tuple[str, ...]:
        """Return the name prefixes of all data files with its rows; new data files get the first one."""
        return self.owners or (make_owner_prefix(self.path),)

    def to_processed_file(self, files: tuple[str, ...], *, is_incomplete: bool = False) -> ProcessedFile:
        """Return the record of this file, with the data files that hold its rows."""
        return ProcessedFile(
            self.path,
            self.size,
            self.modified_ns,
            self.sha256,
            self.identity,
            files,
            owners=self.owned,
            is_incomplete=is_incomplete,
        )


@dataclass(frozen=True)
class FileChanges:
    """What to do for a source: read `new` and `changed` files, remove the rows of `removed` ones.

    The rows of `renamed` and `touched` files are already in the table; only their records are updated. `content` is the
    table's content id afterwards, None if only reading can tell; `content_before` is the current one. `checked_at_ns`
    is the time before the first file was checked. `problem` tells why there are no files at all. `unfinished` files
    are skipped for now, since they are still being written. `forgotten` files were read for a table of this name that
    no longer exists. `missing` are the paths of files that are gone and whose rows stay.
    """

    new: tuple[SourceFile, ...] = ()
    changed: tuple[SourceFile, ...] = ()
    removed: tuple[ProcessedFile, ...] = ()
    renamed: tuple[tuple[ProcessedFile, SourceFile], ...] = ()
    touched: tuple[tuple[ProcessedFile, SourceFile], ...] = ()
    unchanged: int = 0
    content_before: str | None = None
    content: str | None = None
    checked_at_ns: int = 0
    problem: str | None = None
    unfinished: tuple[str, ...] = ()
    forgotten: tuple[ProcessedFile, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether the table's rows stay as they are."""
        return not (self.new or self.changed or self.removed)

    @property
    def files_to_read(self) -> tuple[SourceFile, ...]:
        """Return the files to read, by path."""
        return tuple(sorted((*self.new, *self.changed), key=lambda source_file: source_file.path))

    @property
    def has_new_read_options(self) -> bool:
        """Tell whether files are read with other options than before."""
        pairs = [(candidate.replaces, candidate) for candidate in self.files_to_read if candidate.replaces is not None]
        return any(
            not source_file.row_identity.has_same_options(RowIdentity.from_text(old.identity))
            for old, source_file in pairs
        )

    @property
    def bytes(self) -> int:
        """Return the size of the files to read."""
        return sum(source_file.size for source_file in self.files_to_read)

    @property
    def replaced_files(self) -> tuple[ProcessedFile, ...]:
        """Return the records of files whose rows are removed or replaced."""
        return (
            *(source_file.replaces for source_file in self.files_to_read if source_file.replaces is not None),
            *self.removed,
        )

    @property
    def moved_files(self) -> tuple[ProcessedFile, ...]:
        """Return the new records of files whose rows don't change: renamed, or with a new time."""
        current_paths = {source_file.path for source_file in self.files_to_read} | {
            source_file.path for _, source_file in self.renamed
        }
        removed_records = [old.as_removed() for old, _ in self.renamed if old.path not in current_paths]
        moved_records = [
            source_file.to_processed_file(old.files, is_incomplete=old.is_incomplete)
            for old, source_file in (*self.renamed, *self.touched)
        ]
        return (*removed_records, *moved_records)

    def exclude_paths(self, paths: Collection[str]) -> "FileChanges":
        """Return the changes without some files, whose rows, if any, stay as they are."""
        return replace(
            self,
            new=tuple(source_file for source_file in self.new if source_file.path not in paths),
            changed=tuple(source_file for source_file in self.changed if source_file.path not in paths),
            removed=tuple(old for old in self.removed if old.path not in paths),
            content=None,
            unfinished=tuple(sorted({*self.unfinished, *paths})),
        )

    def list_processed_files(
        self, files: Mapping[str, tuple[str, ...]], incomplete: Collection[str] = ()
    ) -> tuple[ProcessedFile, ...]:
        """Return all records to store once the table has the rows, given the data files of each path that was read.

        `incomplete` are the paths of files that were not read completely. If an existing version with this content is
        reused and nothing was read, the data files are not known: pass none.
        """
        records = {old.path: old.as_removed() for old in self.forgotten}
        records |= {old.path: replace(old, is_removed=True, owners=old.all_owners) for old in self.removed}
        for source_file in self.files_to_read:
            old = source_file.replaces
            if old is not None and old.path != source_file.path:
                records[old.path] = old.as_removed()
        records |= {moved_file.path: moved_file for moved_file in self.moved_files}
        for source_file in self.files_to_read:
            data_files = files.get(source_file.path, ())
            records[source_file.path] = source_file.to_processed_file(
                data_files, is_incomplete=source_file.path in incomplete
            )
        return tuple(records.values())
