"""Find the data files whose rows are replaced: those recorded, else those with rows of the owner of the source file."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent

from runnel.connect.ingest.detect.file_changes import FileChanges, ProcessedFilesLoader
from runnel.errors import RunnelError
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.data_file_owners import (
    is_shared,
    read_file_id,
    read_file_name,
    read_origin,
    read_owner_prefix,
)
from runnel.lake.iceberg.manifests import FileEntry, read_manifest_entries, read_manifests
from runnel.lake.owners.row_parts import FileExcerpt, plan_owner_removal
from runnel.lake.owners.row_runs import list_runs, load_footers

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class ReplacedFiles:
    """Data files of a version to remove, with the `identities` of their rows, which are certain if `is_exact`.

    `excerpts` are rows of other source files in shared data files that are removed; they are written again.
    """

    entries: tuple[FileEntry, ...] = ()
    identities: tuple[str, ...] = ()
    is_exact: bool = True
    is_everything: bool = False  # no other data file is left
    excerpts: tuple[FileExcerpt, ...] = ()


def find_replaced_files(
    store: "Store", base: str | None, file_changes: FileChanges, load_processed_files: ProcessedFilesLoader
) -> ReplacedFiles:
    """Return the data files of a version that hold rows of replaced or removed files; none, perhaps, after a revert."""
    if base is None or not file_changes.replaced_files:
        return ReplacedFiles()
    data_manifests = [
        manifest_file
        for manifest_file in read_manifests(store, table_metadata.load_metadata(store, base))
        if manifest_file.content == ManifestContent.DATA
    ]
    total = sum(
        (manifest_file.added_files_count or 0) + (manifest_file.existing_files_count or 0)
        for manifest_file in data_manifests
    )
    recorded_names = {read_file_name(file) for old in file_changes.replaced_files for file in old.files}
    live_entries: dict[str, FileEntry] = {}
    for manifest in data_manifests:
        live_entries.update((read_file_name(entry.path), entry) for entry in read_manifest_entries(store, manifest))
        if recorded_names <= live_entries.keys() and all(
            _has_own_files_only(old) for old in file_changes.replaced_files
        ):
            break
    finder = _RowFinder(store, live_entries, file_changes, load_processed_files)
    replaced_entries: dict[str, FileEntry] = {}
    identities: list[str] = []
    is_exact = True
    for old in file_changes.replaced_files:
        files, is_certain = finder.find_entries(old)
        replaced_entries |= files
        is_exact &= is_certain
        has_no_rows = file_changes.content is not None and not old.files and not old.is_removed  # part of the content
        if is_certain and (files or has_no_rows):
            identities.append(old.identity)
    shared_entries = [entry for name, entry in replaced_entries.items() if is_shared(name)]
    own_entries = [entry for name, entry in replaced_entries.items() if not is_shared(name)]
    owners = {owner for old in file_changes.replaced_files for owner in old.all_owners} if shared_entries else set()
    removal = plan_owner_removal(store, base, shared_entries, owners)
    is_everything = len(replaced_entries) == total and not removal.excerpts
    return ReplacedFiles((*own_entries, *removal.removed), tuple(identities), is_exact, is_everything, removal.excerpts)


class _RowFinder:
    """Finds the live data files with the rows of source files; what it needs for that is read once, if at all."""

    def __init__(
        self,
        store: "Store",
        live_entries: Mapping[str, FileEntry],
        file_changes: FileChanges,
        load_processed_files: ProcessedFilesLoader,
    ) -> None:
        self._store = store
        self._live_entries = live_entries
        self._file_changes = file_changes
        self._load_processed_files = load_processed_files

    def find_entries(self, old: ProcessedFile) -> tuple[dict[str, FileEntry], bool]:
        """Return the live data files with the rows of a file, and whether it is certain from which read they stem."""
        names = [read_file_name(file) for file in old.files]
        if _has_own_files_only(old) and all(name in self._live_entries for name in names):
            return {name: self._live_entries[name] for name in names}, True
        own_entries: dict[str, FileEntry] = {}
        origins: set[str] = set()
        for owner in old.all_owners:
            for name, origin in self._files_by_owner.get(owner, ()):
                if is_shared(name) or not self._belongs_to_other(name, old):
                    own_entries[name] = self._live_entries[name]
                    origins.add(origin)
        if own_entries:
            return own_entries, origins == {read_file_id(name) for name in names}
        if names and not old.is_removed and self._has_unowned_files:
            raise _describe_rewritten(old)
        # If the content includes its rows though they are missing, they are those of other files with equal rows.
        return {}, self._file_changes.content is None or not names or old.is_removed

    @cached_property
    def _files_by_owner(self) -> dict[str, list[tuple[str, str]]]:
        """The names of data files with rows of each owner, and the ids of the data files that had them first."""
        load_footers(self._store, self._live_entries.values())
        files_by_owner: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self._live_entries.items():
            for owner, origin in {(run.owner, read_origin(run.piece)) for run in list_runs(self._store, entry)}:
                files_by_owner.setdefault(owner, []).append((name, origin))
        return files_by_owner

    @cached_property
    def _has_unowned_files(self) -> bool:
        return any(read_owner_prefix(name) is None and not is_shared(name) for name in self._live_entries)

    @cached_property
    def _paths_by_file(self) -> dict[str, set[str]]:
        paths_by_file: dict[str, set[str]] = {}
        for other in self._load_processed_files().values():
            if not other.is_removed:
                for file in other.files:
                    paths_by_file.setdefault(read_file_name(file), set()).add(other.path)
        return paths_by_file

    def _belongs_to_other(self, name: str, old: ProcessedFile) -> bool:
        """Tell whether a data file is another source file's: that of a renamed file has the prefix of its old path."""
        return bool(self._paths_by_file.get(name, set()) - {old.path})


def _has_own_files_only(old: ProcessedFile) -> bool:
    """Tell whether the recorded data files hold all rows of a file: it inherited none from another file."""
    return bool(old.files) and (old.owners is None or len(old.owners) == 1)


def _describe_rewritten(old: ProcessedFile) -> RunnelError:
    what = (
        f"the rows of {old.path} that were read before can't be distinguished from others: "
        "the table's files were rewritten"
    )
    fix = "revert the commit that rewrote the table's files, and run again"
    return RunnelError("SOURCE_ROWS_REWRITTEN", what, at=old.path, fix=fix)
