"""Tell which files of a source are new, changed or renamed, and whose rows each of them inherits. Pure.

A file has owners: the name prefixes of its data files, in its table and in its quarantine table. It keeps them when it
is renamed, changed, or removed and restored, so that its rows are found whatever a revert brought back in the meantime.
No two files share an owner.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

from runnel.connect.ingest.detect.file_changes import FileChanges, SourceFile
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.iceberg.data_file_owners import make_owner_prefix, read_owner_prefix


def classify_files(
    differing: Iterable[SourceFile],
    processed_files: Mapping[str, ProcessedFile],
    vanished: Iterable[ProcessedFile],
    removed: str,
) -> FileChanges:
    """Classify files as new, changed, removed or renamed.

    The record of a file that vanished or has new contents is free: another file with the contents that the record
    describes takes it over, so that neither a renamed file nor rotated logs are read again.
    """
    source_files = list(differing)
    free_records = {old.path: old for old in vanished}
    vanished_paths = (
        set(free_records) if removed == "delete" else set()
    )  # their rows are removed, unless another file takes them over
    for source_file in source_files:
        old = processed_files.get(source_file.path)
        if old is not None and not old.is_removed:
            free_records[source_file.path] = old
    inherited_records = _claim_records(source_files, free_records)
    owner_assigner = _OwnerAssigner(processed_files, inherited_records.values(), source_files)
    new: list[SourceFile] = []
    changed: list[SourceFile] = []
    renamed: list[tuple[ProcessedFile, SourceFile]] = []
    for source_file in source_files:
        old = inherited_records.get(source_file.path)
        if old is not None and old.identity == source_file.identity:
            renamed.append((old, replace(source_file, owners=old.all_owners)))
        elif old is not None:
            changed.append(_inherit_record(source_file, old))
        elif source_file.path in free_records:
            changed.append(_inherit_record(source_file, free_records.pop(source_file.path)))
        elif (
            source_file.path in processed_files and not processed_files[source_file.path].is_removed
        ):  # another file took over its rows
            changed.append(owner_assigner.assign_new_owner(source_file))
        else:
            new.append(owner_assigner.restore_owners(source_file))
    # Free records that no file took over: the rows of a path that now has other contents are removed.
    replaced_paths = {source_file.path for _, source_file in renamed} | {source_file.path for source_file in changed}
    removed_records = tuple(
        old for path, old in free_records.items() if path in vanished_paths or path in replaced_paths
    )
    return FileChanges(tuple(new), tuple(changed), removed_records, tuple(renamed))


def _claim_records(
    source_files: Iterable[SourceFile], free_records: dict[str, ProcessedFile]
) -> dict[str, ProcessedFile]:
    """Return, and remove from `free_records`, the record that each file takes over: its own if it is among them."""
    records_by_digest: dict[str, list[ProcessedFile]] = {}
    for _, old in sorted(free_records.items()):
        records_by_digest.setdefault(old.sha256, []).append(old)
    claimed_records: dict[str, ProcessedFile] = {}
    for source_file in source_files:
        equal_records = records_by_digest.get(source_file.sha256, [])
        if equal_records:
            index = next((position for position, old in enumerate(equal_records) if old.path == source_file.path), 0)
            claimed_records[source_file.path] = equal_records.pop(index)
            del free_records[claimed_records[source_file.path].path]
    return claimed_records


def _inherit_record(source_file: SourceFile, old: ProcessedFile) -> SourceFile:
    return replace(source_file, replaces=old, owners=old.all_owners)


class _OwnerAssigner:
    """Assigns owners to files that don't replace an existing one."""

    def __init__(
        self,
        processed_files: Mapping[str, ProcessedFile],
        inherited_records: Iterable[ProcessedFile],
        source_files: Iterable[SourceFile],
    ) -> None:
        self._processed_files = processed_files
        self._inherited_records = list(inherited_records)
        self._source_paths = {source_file.path for source_file in source_files}
        self._paths_by_owner: dict[str, str] | None = None  # filled on first use: the path that has an owner
        self._removed_by_digest: dict[str, list[ProcessedFile]] | None = None

    def restore_owners(self, source_file: SourceFile) -> SourceFile:
        """Return a file with the owners of its removed record: at the same path, or at another with equal contents."""
        own_record = self._processed_files.get(source_file.path)
        if own_record is not None and (owners := self._list_free_owners(own_record)):
            return replace(source_file, replaces=own_record, owners=owners)
        equal_records = self._group_removed_by_digest().get(source_file.sha256, [])
        return (
            _inherit_record(source_file, equal_records.pop(0)) if equal_records else self.assign_new_owner(source_file)
        )

    def assign_new_owner(self, source_file: SourceFile) -> SourceFile:
        """Return a file with an owner that no other file has."""
        paths_by_owner = self._map_owners()
        names = (source_file.path if number == 0 else f"{source_file.path}\n{number}" for number in count())
        owner = next(candidate for name in names if (candidate := make_owner_prefix(name)) not in paths_by_owner)
        paths_by_owner[owner] = source_file.path
        return replace(source_file, owners=(owner,))

    def _map_owners(self) -> dict[str, str]:
        if self._paths_by_owner is None:
            paths_by_owner: dict[str, str] = {}
            for path, old in self._processed_files.items():
                owners = old.owners if old.owners is not None else filter(None, map(read_owner_prefix, old.files))
                for owner in owners:
                    if not old.is_removed or owner not in paths_by_owner:
                        paths_by_owner[owner] = path
            paths_by_owner |= {owner: "" for old in self._inherited_records for owner in old.all_owners}
            self._paths_by_owner = paths_by_owner
        return self._paths_by_owner

    def _group_removed_by_digest(self) -> dict[str, list[ProcessedFile]]:
        """Return the records of removed files that may come back under another name."""
        if self._removed_by_digest is None:
            self._removed_by_digest = {}
            removed_records = [
                old for path, old in self._processed_files.items() if old.is_removed and path not in self._source_paths
            ]
            for old in sorted(removed_records, key=lambda old: old.path):
                if owners := self._list_free_owners(old):
                    self._removed_by_digest.setdefault(old.sha256, []).append(replace(old, owners=owners))
        return self._removed_by_digest

    def _list_free_owners(self, old: ProcessedFile) -> tuple[str, ...]:
        """Return the owners of a removed file that no other file has taken over since."""
        paths_by_owner = self._map_owners()
        return tuple(owner for owner in old.all_owners if paths_by_owner.get(owner, old.path) == old.path)
