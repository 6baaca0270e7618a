"""Check that every retained version can be read: each file that it needs exists and matches what was recorded.

Every file is checked once, however many versions need it; a flaw is reported with all versions that it affects.
Never writes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from runnel.errors import CorruptData
from runnel.lake.files import blobs
from runnel.lake.iceberg.data_file_owners import OWNERS_KEY, decode_runs, is_shared
from runnel.lake.iceberg.file_io import StoredFile, list_files
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.lake.upkeep.fsck.findings import RESTORE, FsckFinding
from runnel.lake.upkeep.gc.mark import normalize_path
from runnel.lake.upkeep.gc.retained_commits import VersionUse
from runnel.lake.upkeep.manifest_reader import (
    ListedFile,
    find_readable_snapshots,
    list_statistics_files,
    read_manifest_files,
    read_manifest_list,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.snapshots import Snapshot

    from runnel.lake.store import Store


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a file, independent of the versions that need it."""

    code: str
    file: str
    what: str


class ContentChecker:
    """Checks the files of a lake, each once."""

    def __init__(self, store: "Store", *, deep: bool) -> None:
        self.store = store
        self.deep = deep
        self.files_by_path: dict[str, StoredFile] = {}
        self.checked_paths: set[str] = set()
        self._flaws: dict[str, tuple[Flaw, ...]] = {}  # by path of metadata, list, manifest or flawed file
        self._uses_by_flaw: dict[Flaw, list[VersionUse]] = {}
        self._file_tables: list[VersionUse] = []
        self._seen_blobs: set[str] = set()

    def list_warehouse(self) -> None:
        """List the warehouse once, so that most files need no request of their own."""
        self.files_by_path = {
            normalize_path(stored.path): stored for stored in list_files(self.store.io, self.store.warehouse)
        }

    def check_version(self, use: VersionUse) -> None:
        """Check a version, and record it as a user of every flaw found."""
        for flaw in self._check_once(use.location, lambda: self._check_metadata(use)):
            self._uses_by_flaw.setdefault(flaw, []).append(use)

    def attribute_blobs(self) -> None:
        """Find the versions that need a flawed blob. This reads file tables again, so it runs only if a blob is bad."""
        blob_flaws = {flaw.file: flaw for flaws in self._flaws.values() for flaw in flaws if flaw.code == "FSCK_BLOB"}
        for use in self._file_tables if blob_flaws else ():
            for blob in self._list_blobs(use, None):
                if blob in blob_flaws and use not in self._uses_by_flaw.setdefault(blob_flaws[blob], []):
                    self._uses_by_flaw[blob_flaws[blob]].append(use)

    def findings(self, is_needed: Callable[[VersionUse], bool]) -> Iterator[FsckFinding]:
        """Yield a finding for each flaw of a version that is still needed; a gc may have expired some meanwhile."""
        for flaw, uses in self._uses_by_flaw.items():
            needed_uses = [use for use in uses if is_needed(use)]
            if needed_uses:
                tables = tuple(sorted({use.table for use in needed_uses}))
                yield FsckFinding(
                    "error", flaw.code, flaw.what, flaw.file, tables, find_commit_span(needed_uses), RESTORE
                )

    def _check_once(self, location: str, find_flaws: Callable[[], Iterable[Flaw]]) -> tuple[Flaw, ...]:
        path = normalize_path(location)
        if path not in self._flaws:
            self.checked_paths.add(path)
            self._flaws[path] = tuple(dict.fromkeys(find_flaws()))
        return self._flaws[path]

    def _check_metadata(self, use: VersionUse) -> Iterator[Flaw]:
        try:
            metadata = load_metadata(self.store, use.location)
        except CorruptData as error:
            yield _build_flaw(error, use.location)
            return
        snapshots = find_readable_snapshots(metadata)
        for path in list_statistics_files(metadata, snapshots):
            yield from self._check_presence(normalize_path(path), None)
        for snapshot in snapshots:
            manifest_list = snapshot.manifest_list
            yield from self._check_once(manifest_list, lambda snapshot=snapshot: self._check_manifest_list(snapshot))  # type: ignore[misc]
        if is_file_table(metadata):
            self._file_tables.append(use)
            for blob in self._list_blobs(use, self._seen_blobs):
                yield from self._check_blob(blob)

    def _check_manifest_list(self, snapshot: "Snapshot") -> Iterator[Flaw]:
        try:
            manifests = read_manifest_list(self.store, snapshot)
        except CorruptData as error:
            yield _build_flaw(error, snapshot.manifest_list)
            return
        for manifest in manifests:
            yield from self._check_once(manifest.manifest_path, partial(self._check_manifest, manifest))

    def _check_manifest(self, manifest: "ManifestFile") -> Iterator[Flaw]:
        try:
            for listed_file in read_manifest_files(self.store, manifest):
                yield from self._check_file(listed_file)
        except CorruptData as error:
            yield _build_flaw(error, manifest.manifest_path)

    def _check_file(self, listed_file: ListedFile) -> Sequence[Flaw]:
        path = normalize_path(listed_file.path)
        if path not in self.checked_paths:
            flaws = tuple(self._check_presence(path, listed_file.bytes))
            if not flaws and self.deep and listed_file.is_parquet:
                flaws = tuple(self._check_parquet(path, listed_file.records))
            if flaws:
                self._flaws[path] = flaws
        return self._flaws.get(path, ())

    def _check_presence(self, path: str, size: int | None) -> Iterator[Flaw]:
        self.checked_paths.add(path)
        stored = self.files_by_path.get(path)
        try:
            actual_size = stored.bytes if stored else len(self.store.io.new_input(path))
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError)
            yield Flaw("FSCK_FILE_MISSING", path, f"{path} is gone" if is_missing else f"{path} can't be read: {error}")
            return
        if size is not None and actual_size != size:
            yield Flaw("FSCK_FILE_SIZE", path, f"{path} has {actual_size:,} bytes, but {size:,} are recorded")

    def _check_parquet(self, path: str, records: int) -> Iterator[Flaw]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with self.store.io.new_input(path).open() as stream:
                footer = pq.read_metadata(cast(Any, stream))
        except (OSError, pa.ArrowException) as error:
            yield Flaw("FSCK_FILE_DAMAGED", path, f"{path} can't be read as Parquet: {str(error).splitlines()[0]}")
            return
        rows = footer.num_rows
        if rows != records:
            yield Flaw("FSCK_ROW_COUNT", path, f"{path} has {rows:,} rows, but {records:,} are recorded")
        elif is_shared(path) and _count_owned_rows(path, (footer.metadata or {}).get(OWNERS_KEY.encode())) != rows:
            what = f"{path} does not say of each of its {rows:,} rows from which file of the source it came"
            yield Flaw("FSCK_OWNERS", path, what)

    def _list_blobs(self, use: VersionUse, seen: set[str] | None) -> Iterator[str]:
        try:
            yield from map(
                normalize_path, blobs.find_referenced(self.store, load_metadata(self.store, use.location), seen)
            )
        except Exception:  # a damaged data file can raise anything in its reader
            return  # the data file, or the manifest that lists it, is reported on its own

    def _check_blob(self, path: str) -> Sequence[Flaw]:
        if path not in self.checked_paths:
            self.checked_paths.add(path)
            what = "is gone" if path not in self.files_by_path else None
            if self.deep or what:
                what = blobs.find_damage(
                    self.store, path.removeprefix(normalize_path(self.store.warehouse)).lstrip("/")
                )
            if what:
                self._flaws[path] = (Flaw("FSCK_BLOB", path, f"the blob {path} {what}"),)
        return self._flaws.get(path, ())


def _count_owned_rows(path: str, owners: bytes | None) -> int:
    """Return for how many rows the footer of a shared data file names the owner."""
    try:
        return sum(run.rows for run in decode_runs(path, owners or b"[]"))
    except (ValueError, TypeError):
        return 0


def find_commit_span(uses: Sequence[VersionUse]) -> tuple[str, ...]:
    """Return the ids of the first and the last commit of `uses`; an outside change has no commit yet."""
    first, last = min(uses, key=lambda use: use.first.seq).first.id, max(uses, key=lambda use: use.last.seq).last.id
    return tuple(dict.fromkeys(commit for commit in (first, last) if commit))


def _build_flaw(error: CorruptData, location: str) -> Flaw:
    code = "FSCK_FILE_MISSING" if error.code == "LAKE_FILE_MISSING" else "FSCK_FILE_DAMAGED"
    return Flaw(code, normalize_path(location), error.what)
