"""Write a version's metadata files anew for another warehouse, under fresh names; those that it had stay as they are.

Fresh names make it safe to stop at any point and to start again: what is read is never what was written. A name
follows from the old one and the new place, so a second try writes the same files over those of the first.
"""

import gzip
import json
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.types import StructType

from runnel.errors import Broken, RunnelError
from runnel.lake import failpoints
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.file_io import local_path, missing, read_bytes, write_bytes
from runnel.lake.upkeep.manifest_reader import damaged, has_no_files, is_whole

if TYPE_CHECKING:
    from pyiceberg.typedef import Record

    from runnel.lake.store import Store

_AGAIN = re.compile(r"-r[0-9a-f]{8}\Z")
_FILE_PATH_ID = 2147483546  # of the column of position deletes, fixed by Iceberg
_STATUS, _DATA_FILE = 0, 2
_PATH, _FORMAT, _BYTES, _LOWER, _UPPER, _CONTENT, _REFERENCED = 100, 101, 104, 125, 128, 134, 143
_MANIFEST_PATH, _MANIFEST_LENGTH = 500, 501


@dataclass(frozen=True)
class Swap:
    """Turns a location below one warehouse into the same one below another; others stay.

    >>> swap = Swap("/a/lake", "/a/lake/lake")
    >>> swap("/a/lake/x"), swap("file:/a/lake/x"), swap("/a/lakes/x")
    ('/a/lake/lake/x', 'file:/a/lake/lake/x', '/a/lakes/x')
    """

    old: str
    new: str

    def __call__(self, location: str) -> str:
        """Return where a location is now."""
        for scheme in ("", "file:", "file://") if local_path(self.old) is not None else ("",):
            old = scheme + self.old.rstrip("/")
            if location == old or location.startswith(old + "/"):
                kept = scheme if local_path(self.new) is not None else ""
                return kept + self.new.rstrip("/") + location[len(old) :]
        return location

    def moves(self, location: str) -> bool:
        """Tell whether a location is below the old warehouse."""
        return self(location) != location

    def fresh(self, location: str) -> str:
        """Return where a file is written anew."""
        folder, _, name = self(location).rpartition("/")
        made = uuid.uuid5(uuid.NAMESPACE_URL, f"{self.new}\n{location}")
        if name.endswith(".metadata.json"):
            number = re.match(r"v?(\d+)", name)
            return f"{folder}/{int(number[1]) if number else 0:05d}-{made}.metadata.json"
        stem, dot, ending = name.rpartition(".")
        return f"{folder}/{_AGAIN.sub('', stem)}-r{made.hex[:8]}{dot}{ending}"


class Rewriting:
    """Files written anew for another place, each once however many versions share it."""

    def __init__(self, store: "Store", swap: Swap) -> None:
        self.store = store
        self.swap = swap
        self.files = 0
        self._lists: dict[str, str] = {}
        self._manifests: dict[str, tuple[str, int]] = {}
        self._deletes: dict[str, tuple[str, int, tuple[str, str] | None]] = {}

    def lists(self, version: str, *, with_older: bool = False) -> None:
        """Write the manifest lists that a version promises, with their manifests, anew.

        With `with_older` those of its older snapshots too, where they are still there: a stream reads a tape one
        snapshot after the other.
        """
        metadata = self._metadata(version)
        wanted = {metadata.get("current-snapshot-id")} | {
            ref["snapshot-id"] for ref in metadata.get("refs", {}).values()
        }
        for snapshot in metadata.get("snapshots", ()):
            if snapshot["snapshot-id"] in wanted and self.swap.moves(snapshot.get("manifest-list", "")):
                self._list(snapshot["manifest-list"], has_no_files(snapshot.get("summary")))
            elif with_older and self.swap.moves(snapshot.get("manifest-list", "")):
                with suppress(Broken):
                    self._list(snapshot["manifest-list"], has_no_files(snapshot.get("summary")))

    def metadata(self, version: str, place: Callable[[str], str]) -> None:
        """Write a metadata file anew; `place` tells where other versions are now."""
        metadata, swap = self._metadata(version), self.swap
        metadata["location"] = swap(metadata["location"])
        for snapshot in metadata.get("snapshots", ()):
            if "manifest-list" in snapshot:
                snapshot["manifest-list"] = self._lists.get(snapshot["manifest-list"]) or swap(
                    snapshot["manifest-list"]
                )
            if "manifests" in snapshot:
                snapshot["manifests"] = [swap(path) for path in snapshot["manifests"]]
            if table_properties.LOG in snapshot.get("summary", {}):
                snapshot["summary"][table_properties.LOG] = place(snapshot["summary"][table_properties.LOG])
        for entry in metadata.get("metadata-log", ()):
            entry["metadata-file"] = place(entry["metadata-file"])
        for entry in [*metadata.get("statistics", ()), *metadata.get("partition-statistics", ())]:
            entry["statistics-path"] = swap(entry["statistics-path"])
        metadata["properties"] = {name: swap(value) for name, value in metadata.get("properties", {}).items()}
        self._written(swap.fresh(version), json.dumps(metadata).encode())

    def _metadata(self, version: str) -> dict[str, Any]:
        contents = read_bytes(self.store.io, self.swap(version))
        try:
            found = json.loads(gzip.decompress(contents) if contents[:2] == b"\x1f\x8b" else contents)
        except (ValueError, OSError) as error:
            raise damaged(self.swap(version), "it can't be read as table metadata") from error
        return cast("dict[str, Any]", found)

    def _list(self, path: str, may_be_empty: bool) -> None:
        if path in self._lists:
            return

        def change(record: "Record", at: dict[int, int]) -> None:
            manifest = record[at[_MANIFEST_PATH]]
            if self.swap.moves(manifest):
                record[at[_MANIFEST_PATH]], record[at[_MANIFEST_LENGTH]] = self._manifest(manifest)

        self._lists[path] = self._avro(path, change, may_be_empty)[0]

    def _manifest(self, path: str) -> tuple[str, int]:
        if path not in self._manifests:
            self._manifests[path] = self._avro(path, self._entry)
        return self._manifests[path]

    def _entry(self, record: "Record", at: dict[int, int]) -> None:
        file = record[at[_DATA_FILE]]
        deletes = at.get(_CONTENT) is not None and file[at[_CONTENT]] == int(DataFileContent.POSITION_DELETES)
        path = file[at[_PATH]]
        if deletes and record[at[_STATUS]] != int(ManifestEntryStatus.DELETED):
            made, size, bounds = self._position_deletes(path, file[at[_FORMAT]])
            file[at[_PATH]], file[at[_BYTES]] = made, size
            for field, bound in zip((_LOWER, _UPPER), bounds or (), strict=False):
                found = dict(file[at[field]] or {})
                if _FILE_PATH_ID in found:
                    file[at[field]] = {**found, _FILE_PATH_ID: bound.encode()}
        else:
            file[at[_PATH]] = self.swap(path)
        if at.get(_REFERENCED) is not None and file[at[_REFERENCED]]:
            file[at[_REFERENCED]] = self.swap(file[at[_REFERENCED]])

    def _position_deletes(self, path: str, kind: str) -> tuple[str, int, tuple[str, str] | None]:
        """Write position deletes, which name the data files that they apply to, anew."""
        if path not in self._deletes:
            if kind.upper() != "PARQUET" or not self.swap.moves(path):
                what = f"{path} holds deletes of rows in a form that can't be moved"
                raise RunnelError("RELOCATE_DELETES", what, fix="move the folder back, and compact the table first")
            self._deletes[path] = self._deletes_anew(path)
        return self._deletes[path]

    def _deletes_anew(self, path: str) -> tuple[str, int, tuple[str, str] | None]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with self.store.io.new_input(self.swap(path)).open() as stream:
                table = pq.read_table(cast(Any, stream))
        except FileNotFoundError as error:
            raise missing(self.swap(path)) from error
        except pa.ArrowException as error:
            raise damaged(self.swap(path), "it can't be read as Parquet") from error
        files = [self.swap(str(name)) for name in table["file_path"].to_pylist()]
        column = table.schema.get_field_index("file_path")
        field = table.schema.field(column)
        table = table.set_column(column, field, pa.array(files, field.type))
        table = table.sort_by([("file_path", "ascending"), ("pos", "ascending")])
        made = pa.BufferOutputStream()
        pq.write_table(table, made, compression="zstd")
        contents = made.getvalue().to_pybytes()
        return (
            self._written(self.swap.fresh(path), contents),
            len(contents),
            (min(files), max(files)) if files else None,
        )

    def _avro(
        self, path: str, change: "Callable[[Record, dict[int, int]], None]", may_be_empty: bool = False
    ) -> tuple[str, int]:
        """Write an Avro file anew with its records changed, and everything else as it was; return it with its size."""
        source, made = self.swap(path), self.swap.fresh(path)
        try:
            with AvroFile["Record"](self.store.io.new_input(source)) as reader:
                records, schema, header = list(reader), reader.schema, dict(reader.header.meta)
                whole = is_whole(reader, may_be_empty=may_be_empty)
        except FileNotFoundError as error:
            raise missing(source) from error
        except Exception as error:  # whatever a damaged Avro file makes of the decoder
            raise damaged(source, "it can't be read as Avro") from error
        if not whole:
            raise damaged(source, "it is cut off")
        at = _places(schema.as_struct())
        for record in records:
            change(record, at)
        name = json.loads(header.pop("avro.schema")).get("name", "record")
        output = self.store.io.new_output(made)
        with AvroOutputFile["Record"](output, schema, name, metadata=header) as writer:
            writer.write_block(records)
        self._count()
        return made, len(output)

    def _written(self, location: str, contents: bytes) -> str:
        write_bytes(self.store.io, location, contents)
        self._count()
        return location

    def _count(self) -> None:
        self.files += 1
        failpoints.reach(failpoints.RELOCATE_FILE)


def _places(struct: StructType) -> dict[int, int]:
    """Return the position of each field in its record, by field id, for records and the one nested in them."""
    found = {field.field_id: place for place, field in enumerate(struct.fields)}
    for field in struct.fields:
        if field.field_id == _DATA_FILE and isinstance(field.field_type, StructType):
            found |= {inner.field_id: place for place, inner in enumerate(field.field_type.fields)}
    return found
