"""Find the data files whose rows are replaced: those recorded, else those with the owner prefix of the source file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent

from runnel.connect.ingest.detect.file_changes import FileChanges, ProcessedFilesLoader
from runnel.errors import RunnelError
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.data_file_owners import read_file_name, read_owner_prefix
from runnel.lake.iceberg.manifests import FileEntry, read_manifest_entries, read_manifests

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class ReplacedFiles:
    """Data files of a version to remove, with the `identities` of their rows, which are certain if `is_exact`."""

    entries: tuple[FileEntry, ...] = ()
    identities: tuple[str, ...] = ()
    is_exact: bool = True
    is_everything: bool = False  # no other data file is left


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
    replaced_entries: dict[str, FileEntry] = {}
    identities: list[str] = []
    is_exact, load_once = True, cache(load_processed_files)
    for old in file_changes.replaced_files:
        files, is_certain = _find_entries(old, live_entries, file_changes, load_once)
        replaced_entries |= files
        is_exact &= is_certain
        has_no_rows = file_changes.content is not None and not old.files and not old.is_removed  # part of the content
        if is_certain and (files or has_no_rows):
            identities.append(old.identity)
    return ReplacedFiles(tuple(replaced_entries.values()), tuple(identities), is_exact, len(replaced_entries) == total)


def _find_entries(
    old: ProcessedFile,
    live_entries: Mapping[str, FileEntry],
    file_changes: FileChanges,
    load_processed_files: ProcessedFilesLoader,
) -> tuple[dict[str, FileEntry], bool]:
    """Return the live data files with the rows of a file, and whether it is certain from which read they stem."""
    names = [read_file_name(file) for file in old.files]
    if _has_own_files_only(old) and all(name in live_entries for name in names):
        return {name: live_entries[name] for name in names}, True
    prefixes = set(old.all_owners)
    files_of_others = _list_files_of_others(old, load_processed_files().values())
    files = {
        name: entry
        for name, entry in live_entries.items()
        if read_owner_prefix(name) in prefixes and name not in files_of_others
    }
    if files:
        return files, files.keys() == set(names)
    if names and not old.is_removed and any(read_owner_prefix(name) is None for name in live_entries):
        raise _describe_rewritten(old)
    # If the content includes its rows though they are missing, they are those of other files with equal rows.
    return {}, file_changes.content is None or not names or old.is_removed


def _has_own_files_only(old: ProcessedFile) -> bool:
    """Tell whether the recorded data files hold all rows of a file: it inherited none from another file."""
    return bool(old.files) and (old.owners is None or len(old.owners) == 1)


def _list_files_of_others(old: ProcessedFile, processed_files: Iterable[ProcessedFile]) -> frozenset[str]:
    """Return the data files of other source files: those of a renamed file still have the prefix of its old path."""
    return frozenset(
        read_file_name(file)
        for other in processed_files
        if other.path != old.path and not other.is_removed
        for file in other.files
    )


def _describe_rewritten(old: ProcessedFile) -> RunnelError:
    what = (
        f"the rows of {old.path} that were read before can't be distinguished from others: "
        "the table's files were rewritten"
    )
    fix = "revert the commit that rewrote the table's files, and run again"
    return RunnelError("SOURCE_ROWS_REWRITTEN", what, at=old.path, fix=fix)
