"""Find the versions and files that an erasure affects, and stage their replacements.

Reads the lake and stages new files; nothing points at them until they are published. If it runs again after the table
has changed, it handles only new versions.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.metadata import TableMetadata

from runnel.errors import CorruptData, RunnelError, join_names
from runnel.lake import failpoints
from runnel.lake.diff.content_id import is_location
from runnel.lake.flow_state.append_log import APPEND_LOG_LAYER
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.table_metadata import check_writable
from runnel.lake.scan.duckdb_types import DuckdbScanError
from runnel.lake.scan.scan_sql import normalize_file_path
from runnel.lake.scan.scan_units import count_bytes, list_outside_paths
from runnel.lake.upkeep import position_deletes
from runnel.lake.upkeep.append_log_rewrite import AppendLogRewriter
from runnel.lake.upkeep.compact.file_selection import is_in_warehouse
from runnel.lake.upkeep.erase import row_matches
from runnel.lake.upkeep.erase.condition import Condition
from runnel.lake.upkeep.erase.file_rewriter import FileRewrite, RewrittenFiles
from runnel.lake.upkeep.erase.file_search import FileSearcher, SearchGroup, divide_groups
from runnel.lake.upkeep.erase.version_references import (
    VersionReferences,
    VersionSwap,
    find_sharing_tables,
    read_references,
)
from runnel.lake.upkeep.erase.version_rewriter import LoadedVersion, VersionReader, VersionRewriter
from runnel.lake.upkeep.gc.mark import MarkedFiles, normalize_path
from runnel.lake.upkeep.gc.retained_commits import iter_version_uses, read_unexpired_commits
from runnel.lake.upkeep.position_set import NO_POSITIONS, PositionSet
from runnel.lake.work_runner import ProcessRunner, ReportUnits, WorkContext, WorkRunner

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.store import Store
    from runnel.names import TableName


class Erasure:
    """An erasure of rows from a table."""

    def __init__(self, store: "Store", table: "TableName", condition: Condition, work: WorkContext) -> None:
        self.store = store
        self.table = table
        self.condition = condition
        self.names: set[str] = {str(table)}
        self.versions: dict[str, LoadedVersion] = {}
        self.swept_locations: set[str] = set()  # versions of expired commits that gc has deleted
        self.affected_locations: list[str] = []
        self._work = work
        self._runner: WorkRunner | None = None  # chosen by the size of the files that are searched first
        self._references = VersionReferences((), (), (), ())
        self._required_locations: set[str] = set()  # versions that must be readable
        self._missing_files: set[str] = set()  # files that only swept versions list
        self._files_to_delete: list[str] = []
        self.rows_by_branch: dict[str, int] = {}  # number of rows that the newest version of each branch loses
        self._current_positions: dict[str, PositionSet] = {}  # positions of those rows, by file
        self._matches = row_matches.RowMatches()
        self._names_by_delete: dict[str, frozenset[str]] = {}
        self._touched_files: set[str] = set()  # data files to be rewritten or dropped
        self._staged_files: set[str] = set()
        self._unlisted_files: set[str] = set()  # removed data files whose bounds manifests still record
        self._rewritten_files = RewrittenFiles(store.files)
        self._replacements: dict[str, dict[str, DataFile | None]] = {}
        self._new_locations: dict[str, str] = {}
        self._version_reader, self._rewriter = VersionReader(store), VersionRewriter(store)

    @property
    def newest_metadata(self) -> TableMetadata:
        """Return the metadata of the newest version, preferably main's; an old one if no branch has the table."""
        locations = [location for location in self._references.head_locations if location in self.versions]
        return self.versions[(locations or sorted(self.versions))[0]].metadata

    @property
    def is_empty(self) -> bool:
        """Return whether no row matches."""
        return not self._matches.positions_by_file

    @property
    def rows(self) -> int:
        """Return how many rows match in the newest versions of branches; a row that branches share counts once."""
        return sum(positions.count for positions in self._current_positions.values())

    @property
    def copies(self) -> int:
        """Return how many rows match in all files of all versions; every copy of a row counts."""
        return sum(positions.count for positions in self._matches.positions_by_file.values())

    @property
    def files(self) -> int:
        """Return how many data files hold such rows."""
        return len(self._matches.positions_by_file)

    @property
    def blobs(self) -> set[str]:
        """Return the blobs that erased rows refer to, as names below the warehouse."""
        return self._matches.blobs

    @property
    def examined_locations(self) -> frozenset[str]:
        """Return every version that was examined."""
        return frozenset(self.versions) | frozenset(self.swept_locations)

    @property
    def runner(self) -> WorkRunner:
        """Return where files are searched and rewritten."""
        return self._runner or ProcessRunner()

    def find_affected_versions(self) -> None:
        """Read all versions that exist now, find the rows that match, and the versions that have to change."""
        self._read_versions()
        newest_versions = [
            self.versions[location] for location in self._references.head_locations if location in self.versions
        ]
        columns = row_matches.ConditionColumns(self.condition, newest_versions, self.versions.values())
        self._search_files(row_matches.plan_search(columns, self.versions.values(), self._matches.searched_files))
        outside_paths = [path for path in self._matches.positions_by_file if not is_in_warehouse(self.store, path)]
        if outside_paths:
            raise RunnelError(
                "ERASE_OUTSIDE_FILE",
                f"{join_names([normalize_location(path) for path in sorted(outside_paths)])} "
                "hold rows to be erased, but were registered in place, "
                "and Runnel does not change files that it did not write",
                fix="copy them into the lake with `runnel compact --force`, "
                "let gc expire the commits that hold them, then erase",
            )
        if not self.is_empty:
            self._collect_touched_files()
        self._count_rows()
        self.affected_locations = [
            location for location, version in self.versions.items() if self._is_affected(version)
        ]

    def stage_versions(self) -> None:
        """Write the new files and versions that were not staged before."""
        report = self._make_phase_reporter("write")
        if self._staged_files != self._touched_files:  # a new version added more files
            self._new_locations, self._replacements, self._staged_files = {}, {}, set(self._touched_files)
        locations = [location for location in self.affected_locations if location not in self._new_locations]
        rewrites = (rewrite for location in locations for rewrite in self._iter_rewrites(self.versions[location]))
        self._rewritten_files.add(rewrites, self.runner, self._make_phase_reporter("rewrite"))
        for location in locations:
            self._replacements[location] = self._build_replacements(self.versions[location])
        failpoints.reach(failpoints.ERASE_FILES)
        for done, location in enumerate(locations, 1):
            version, replacements = self.versions[location], self._replacements[location]
            if location in self._append_log_locations:
                self._new_locations[location] = AppendLogRewriter(self.store, version, replacements).rewrite()
            else:
                self._new_locations[location] = self._rewriter.rewrite(version, replacements)
            report(done, len(locations))
        self._files_to_delete = self._find_unneeded_files()

    def _search_files(self, groups: list[SearchGroup]) -> None:
        entries = [entry for group in groups for entry in group.entries]
        if self._runner is None:
            outside_paths = list_outside_paths(self.store.warehouse, entries)
            self._runner = self._work.choose_runner(count_bytes(entries), outside_paths)
        units = list(divide_groups(groups, self._runner))
        try:
            results = self._runner.run(FileSearcher(self.store.files), units, self._make_phase_reporter("look"))
        except DuckdbScanError as error:
            raise _needs_spark_error(error.what) from error
        for unit, rows in zip(units, results, strict=True):
            self._matches.add(unit, rows)

    def build_swap(self) -> VersionSwap:
        """Return which new versions and files replace which old ones once this is published."""
        contents = dict(self._new_locations)
        for change in self._references.changes:
            # The version that a compaction records as its content may have been deleted; its content id has to change
            # all the same. So has a content id that is a hash of rows or of source files.
            if change.content and change.after in self._new_locations and not self._is_readable(change.content):
                contents.setdefault(change.content, self._new_locations[change.after])
        files = {
            location: {path: file.file_path if file else None for path, file in replacements.items()}
            for location, replacements in self._replacements.items()
        }
        return VersionSwap(self._new_locations, contents, files)

    def map_renamed_files(self) -> dict[str, list[str]]:
        """Return the files that replace each changed data file, in any version."""
        paths_by_old_path: dict[str, list[str]] = {}
        for replacements in self._replacements.values():
            for path, file in replacements.items():
                new_paths = paths_by_old_path.setdefault(path, [])
                if file is not None and file.file_path not in new_paths:
                    new_paths.append(file.file_path)
        return paths_by_old_path

    @property
    def unchanged_locations(self) -> frozenset[str]:
        """Return the examined versions that have no matching rows."""
        return frozenset(self.versions) - frozenset(self._new_locations)

    def list_files_to_delete(self) -> list[str]:
        """Return the files that hold erased rows or metadata about them, and that no version needs any more."""
        return self._files_to_delete

    @property
    def streams(self) -> list[str]:
        """Return the streams whose append logs hold files that have to change."""
        return sorted(
            {row.stream for row in self._references.append_logs if row.append_log.location in self.affected_locations}
        )

    @property
    def _append_log_locations(self) -> frozenset[str]:
        """Return the versions that are append logs: those of streams and those that slots still have."""
        return self._references.append_log_locations | {
            catalog_row.location
            for catalog_row in self._references.catalog_rows
            if catalog_row.layer == APPEND_LOG_LAYER
        }

    def _is_readable(self, content: str) -> bool:
        return is_location(content) and content not in self.swept_locations

    def _find_unneeded_files(self) -> list[str]:
        mark = MarkedFiles(self.store)
        # Versions that only results refer to are forgotten with the results.
        named_locations = self._required_locations | {
            catalog_row.location for catalog_row in self._references.catalog_rows
        }
        forgotten_locations = {
            location for result in self._references.results for location in result.own_locations
        } - named_locations
        old_locations = {
            self._new_locations.get(location, location): location
            for location in self.versions
            if location not in forgotten_locations
        }
        unreadable = mark.mark_readable(old_locations)
        for location in old_locations:
            if old_locations[location] in self._append_log_locations and location not in unreadable:
                mark.mark_older_snapshots(location)
        if unreadable:  # deleted by gc since they were read, which matters only if they are still required
            _, required = self.store.db.read(self._read_references)
            mark.mark_versions(location for location in unreadable if old_locations[location] in required)
        old_paths = {path for path in self._touched_files if is_in_warehouse(self.store, path)}
        for location in self.affected_locations:
            version = self.versions[location]
            old_paths |= {location} | version.find_manifest_lists() | set(self._replacements[location])
            old_paths |= {entry.statistics_path for entry in version.metadata.statistics}
            old_paths |= {entry.statistics_path for entry in version.metadata.partition_statistics}
            old_paths |= {
                listing.manifest.manifest_path for listing in (*version.current_manifests, *version.older_manifests)
            }
        warehouse_paths = {normalize_path(path) for path in old_paths if is_in_warehouse(self.store, path)}
        return sorted(path for path in warehouse_paths if not mark.is_needed(path))

    def _read_versions(self) -> None:
        self._references, self._required_locations = self.store.db.read(self._read_references)
        locations = sorted(self._references.locations - self.examined_locations)
        if not self._references.locations:
            raise self.store.unknown_table_error(self.table, self.store.commit())
        report = self._make_phase_reporter("read")
        for done, location in enumerate(locations, 1):
            try:
                self.versions[location] = self._version_reader.read_version(location)
            except CorruptData:
                if location in self._required_locations:
                    raise
                self.swept_locations.add(location)  # its commits have expired, and gc has deleted it
            report(done, len(locations))
        folders = {version.metadata.location for version in self.versions.values()}
        names = self.store.db.read(lambda connection: find_sharing_tables(connection, folders))
        if not names <= self.names:
            self.names |= names
            self._read_versions()
        self._note_missing_files()

    def _note_missing_files(self) -> None:
        """Note missing files that only versions list which nothing needs any more."""
        required_versions = [self.versions[location] for location in self._required_locations & self.versions.keys()]
        required_paths = {
            entry.path
            for version in required_versions
            for listing in version.current_manifests
            for entry in listing.live_entries
        }
        other_paths = {
            entry.path for version in self.versions.values() for entry in _iter_entries(version)
        } - required_paths
        self._missing_files |= {path for path in other_paths if not self.store.io.new_input(path).exists()}
        self._matches.searched_files |= self._missing_files

    def _read_references(self, connection: "Connection") -> tuple[VersionReferences, set[str]]:
        references = read_references(connection, self.names)
        retained_locations = {
            use.location
            for use in iter_version_uses(connection, read_unexpired_commits(connection))
            if use.table in self.names
        }
        own_locations = {
            catalog_row.location
            for catalog_row in references.catalog_rows
            if catalog_row.catalog in references.branches
        }
        own_locations |= {
            location for row in references.append_logs for location in (row.append_log.location, row.append_log.reached)
        }
        return references, retained_locations | own_locations | {head.location for head in references.heads}

    def _collect_touched_files(self) -> None:
        """Collect every file that has to change because rows match."""
        for version in self.versions.values():
            check_writable(version.metadata)
        entries = {
            entry.path: entry
            for version in self.versions.values()
            for entry in _iter_entries(version)
            if entry.path not in self._missing_files
        }
        deletes = [entry for entry in entries.values() if not entry.is_data]
        if any(entry.is_equality_delete or entry.file.file_format != FileFormat.PARQUET for entry in deletes):
            raise _needs_spark_error("the table has equality deletes or deletion vectors, written by another engine")
        self._names_by_delete |= position_deletes.read_data_file_names(
            [entry for entry in deletes if entry.path not in self._names_by_delete]
        )
        self._touched_files |= set(self._matches.positions_by_file)
        path_by_name = {normalize_file_path(path): path for path, entry in entries.items() if entry.is_data}
        self._follow_deletes(deletes, path_by_name)
        removed_paths = {
            path
            for version in self.versions.values()
            for listing in (*version.current_manifests, *version.older_manifests)
            for path in listing.removed_paths
        }
        self._unlisted_files = removed_paths - entries.keys() - self._missing_files

    def _follow_deletes(self, deletes: list[FileEntry], path_by_name: Mapping[str, str]) -> None:
        """Add every other data file named by a delete file that keeps copies of rows, so that it can be removed."""
        has_grown = True
        while has_grown:
            count_before = len(self._touched_files)
            names = {normalize_file_path(path) for path in self._touched_files}
            for delete in deletes:
                if self._names_by_delete[delete.path] & names and position_deletes.has_row_copies(delete):
                    self._touched_files |= {
                        path_by_name[name] for name in self._names_by_delete[delete.path] if name in path_by_name
                    }
            has_grown = len(self._touched_files) > count_before

    def _is_affected(self, version: LoadedVersion) -> bool:
        touched_paths = self._touched_files | self._unlisted_files
        return any(
            not touched_paths.isdisjoint(listing.removed_paths)
            or any(entry.path in touched_paths for entry in listing.live_entries)
            for listing in (*version.current_manifests, *version.older_manifests)
        )

    def _build_replacements(self, version: LoadedVersion) -> dict[str, DataFile | None]:
        """Return the replacement of each file of a version that has to change."""
        live_entries = {entry.path: entry for listing in version.current_manifests for entry in listing.live_entries}
        deletes = [entry for entry in live_entries.values() if not entry.is_data]
        replacements: dict[str, DataFile | None] = dict.fromkeys(self._touched_files | self._unlisted_files)
        for _, rewrite in self._iter_rewrites(version):
            new_file = self._rewritten_files.get(rewrite.key, keep_empty=rewrite.keep_empty)
            replacements[rewrite.entry.path] = new_file
        touched_names = {normalize_file_path(path) for path in self._touched_files}
        untouched_names = {
            normalize_file_path(path) for path, entry in live_entries.items() if entry.is_data
        } - touched_names
        for delete in deletes:
            data_file_names = self._names_by_delete.get(delete.path, frozenset())
            if data_file_names & touched_names and not data_file_names & untouched_names:
                replacements[delete.path] = None
        return replacements

    def _iter_rewrites(self, version: LoadedVersion) -> Iterator[tuple[TableMetadata, FileRewrite]]:
        """Yield the data files of a version that have to be rewritten. Append logs keep files without rows."""
        live_entries = {entry.path: entry for listing in version.current_manifests for entry in listing.live_entries}
        deletes = [entry for entry in live_entries.values() if not entry.is_data]
        keep_empty = version.location in self._append_log_locations
        for path in self._touched_files & live_entries.keys():
            entry = live_entries[path]
            file_deletes = tuple(
                delete for delete in deletes if position_deletes.applies_to(delete, entry, self._names_by_delete)
            )
            positions = self._matches.positions_by_file.get(path, NO_POSITIONS)
            yield version.metadata, FileRewrite(entry, positions, file_deletes, keep_empty)

    def _count_rows(self) -> None:
        self.rows_by_branch, self._current_positions = {}, {}
        for head in self._references.heads:
            if head.location not in self.versions:
                continue
            self.rows_by_branch.setdefault(head.branch, 0)
            for path, positions in self._iter_visible_matches(self.versions[head.location]):
                self.rows_by_branch[head.branch] += positions.count
                previous = self._current_positions.get(path, positions)
                self._current_positions[path] = (
                    positions
                    if positions == previous
                    else PositionSet.build(np.union1d(positions.to_array(), previous.to_array()))
                )

    def _iter_visible_matches(self, version: LoadedVersion) -> Iterator[tuple[str, PositionSet]]:
        """Yield the positions of the erased rows of each file of a version, without rows that a delete hides."""
        live_entries = {entry.path: entry for listing in version.current_manifests for entry in listing.live_entries}
        deletes = [entry for entry in live_entries.values() if not entry.is_data]
        for path in self._matches.positions_by_file.keys() & live_entries.keys():
            file_deletes = [
                delete
                for delete in deletes
                if position_deletes.applies_to(delete, live_entries[path], self._names_by_delete)
            ]
            positions = self._matches.positions_by_file[path]
            yield (
                path,
                PositionSet.build(
                    np.setdiff1d(
                        positions.to_array(), position_deletes.read_positions(file_deletes, live_entries[path])
                    )
                )
                if file_deletes
                else positions,
            )

    def _make_phase_reporter(self, phase: str) -> ReportUnits:
        return self._work.make_unit_reporter(f"erase {self.table}: {phase}")


def _iter_entries(version: LoadedVersion) -> Iterator[FileEntry]:
    for listing in (*version.current_manifests, *version.older_manifests):
        yield from listing.live_entries


def _needs_spark_error(what: str) -> RunnelError:
    fix = "rewrite the table's files with Spark, let gc remove the earlier versions, then erase"
    return RunnelError("ERASE_NEEDS_SPARK", f"can't erase: {what}", fix=fix)
