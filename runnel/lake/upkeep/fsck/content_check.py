"""Check that every kept version can be read: each file that it needs is there and is what was recorded.

Every file is looked at once, however many versions need it; what is wrong with it is told with all of them.
Never writes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from runnel.errors import Broken
from runnel.lake.files import blobs
from runnel.lake.iceberg.file_io import Stored, listing
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.lake.upkeep.fsck.findings import RESTORE, Finding
from runnel.lake.upkeep.gc.mark import key
from runnel.lake.upkeep.gc.retained_commits import Use
from runnel.lake.upkeep.manifest_reader import Listed, files_in, manifests_in, promised_snapshots, statistics_of

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.snapshots import Snapshot

    from runnel.lake.store import Store


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a file, whoever needs it."""

    code: str
    file: str
    what: str


class Contents:
    """The files of a lake, each checked once."""

    def __init__(self, store: "Store", *, deep: bool) -> None:
        self.store = store
        self.deep = deep
        self.stored: dict[str, Stored] = {}
        self.seen: set[str] = set()
        self._flaws: dict[str, tuple[Flaw, ...]] = {}  # of versions, manifest lists and manifests, and of flawed files
        self._needed: dict[Flaw, list[Use]] = {}
        self._file_tables: list[Use] = []
        self._blobs_seen: set[str] = set()

    def survey(self) -> None:
        """List the warehouse, so that most files need no look of their own."""
        self.stored = {key(stored.path): stored for stored in listing(self.store.io, self.store.warehouse)}

    def check(self, use: Use) -> None:
        """Check a version, and remember who needs what is wrong with it."""
        for flaw in self._once(use.location, lambda: self._version(use)):
            self._needed.setdefault(flaw, []).append(use)

    def attribute_blobs(self) -> None:
        """Find who needs the blobs that are flawed; it costs a second look, which sound lakes are spared."""
        bad = {flaw.file: flaw for flaws in self._flaws.values() for flaw in flaws if flaw.code == "FSCK_BLOB"}
        for use in self._file_tables if bad else ():
            for blob in self._blobs(use, None):
                if blob in bad and use not in self._needed.setdefault(bad[blob], []):
                    self._needed[bad[blob]].append(use)

    def findings(self, still: Callable[[Use], bool]) -> Iterator[Finding]:
        """Yield what is wrong with versions that are `still` needed; a gc may have let some go meanwhile."""
        for flaw, uses in self._needed.items():
            kept = [use for use in uses if still(use)]
            if kept:
                tables = tuple(sorted({use.table for use in kept}))
                yield Finding("error", flaw.code, flaw.what, flaw.file, tables, span(kept), RESTORE)

    def _once(self, location: str, look: Callable[[], Iterable[Flaw]]) -> tuple[Flaw, ...]:
        path = key(location)
        if path not in self._flaws:
            self.seen.add(path)
            self._flaws[path] = tuple(dict.fromkeys(look()))
        return self._flaws[path]

    def _version(self, use: Use) -> Iterator[Flaw]:
        try:
            metadata = load(self.store, use.location)
        except Broken as error:
            yield _flaw(error, use.location)
            return
        snapshots = promised_snapshots(metadata)
        for path in statistics_of(metadata, snapshots):
            yield from self._present(key(path), None)
        for snapshot in snapshots:
            made = snapshot.manifest_list
            yield from self._once(made, lambda snapshot=snapshot: self._manifests(snapshot))  # type: ignore[misc]
        if is_file_table(metadata):
            self._file_tables.append(use)
            for blob in self._blobs(use, self._blobs_seen):
                yield from self._blob(blob)

    def _manifests(self, snapshot: "Snapshot") -> Iterator[Flaw]:
        try:
            found = manifests_in(self.store, snapshot)
        except Broken as error:
            yield _flaw(error, snapshot.manifest_list)
            return
        for manifest in found:
            yield from self._once(manifest.manifest_path, lambda manifest=manifest: self._files(manifest))  # type: ignore[misc]

    def _files(self, manifest: "ManifestFile") -> Iterator[Flaw]:
        try:
            for listed in files_in(self.store, manifest):
                yield from self._file(listed)
        except Broken as error:
            yield _flaw(error, manifest.manifest_path)

    def _file(self, listed: Listed) -> Sequence[Flaw]:
        path = key(listed.path)
        if path not in self.seen:
            flaws = tuple(self._present(path, listed.bytes))
            if not flaws and self.deep and listed.is_parquet:
                flaws = tuple(self._parquet(path, listed.records))
            if flaws:
                self._flaws[path] = flaws
        return self._flaws.get(path, ())

    def _present(self, path: str, size: int | None) -> Iterator[Flaw]:
        self.seen.add(path)
        stored = self.stored.get(path)
        try:
            found = stored.bytes if stored else len(self.store.io.new_input(path))
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            yield Flaw("FSCK_FILE_MISSING", path, f"{path} is gone" if gone else f"{path} can't be read: {error}")
            return
        if size is not None and found != size:
            yield Flaw("FSCK_FILE_SIZE", path, f"{path} has {found:,} bytes, but {size:,} are recorded")

    def _parquet(self, path: str, records: int) -> Iterator[Flaw]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with self.store.io.new_input(path).open() as stream:
                rows = pq.read_metadata(cast(Any, stream)).num_rows
        except (OSError, pa.ArrowException) as error:
            yield Flaw("FSCK_FILE_DAMAGED", path, f"{path} can't be read as Parquet: {str(error).splitlines()[0]}")
            return
        if rows != records:
            yield Flaw("FSCK_ROW_COUNT", path, f"{path} has {rows:,} rows, but {records:,} are recorded")

    def _blobs(self, use: Use, seen: set[str] | None) -> Iterator[str]:
        try:
            yield from map(key, blobs.referenced(self.store, load(self.store, use.location), seen))
        except Exception:  # whatever a damaged data file makes of its reader
            return  # the data file, or what lists it, is found flawed by itself

    def _blob(self, path: str) -> Sequence[Flaw]:
        if path not in self.seen:
            self.seen.add(path)
            what = "is gone" if path not in self.stored else None
            if self.deep or what:
                what = blobs.damage(self.store, path.removeprefix(key(self.store.warehouse)).lstrip("/"))
            if what:
                self._flaws[path] = (Flaw("FSCK_BLOB", path, f"the blob {path} {what}"),)
        return self._flaws.get(path, ())


def span(uses: Sequence[Use]) -> tuple[str, ...]:
    """Return the first and the last commit that uses span; an outside change has no commit yet."""
    first, last = min(uses, key=lambda use: use.first.seq).first.id, max(uses, key=lambda use: use.last.seq).last.id
    return tuple(dict.fromkeys(commit for commit in (first, last) if commit))


def _flaw(error: Broken, location: str) -> Flaw:
    code = "FSCK_FILE_MISSING" if error.code == "LAKE_FILE_MISSING" else "FSCK_FILE_DAMAGED"
    return Flaw(code, key(location), error.what)
