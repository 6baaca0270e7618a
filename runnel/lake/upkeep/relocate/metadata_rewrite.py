"""Rewrite a version's metadata files for another warehouse, under new names; the old files stay as they are.

New names make it safe to stop at any point and to start again: the files read are never the files written. A name is
derived from the old name and the new warehouse, so a second attempt overwrites the files of the first.
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

from runnel.errors import CorruptData, RunnelError
from runnel.lake import failpoints
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.file_io import local_path, missing_file_error, read_bytes, write_bytes
from runnel.lake.upkeep.manifest_reader import damaged_file_error, ended_cleanly, has_no_files

if TYPE_CHECKING:
    from pyiceberg.typedef import Record

    from runnel.lake.store import Store

_REWRITTEN_SUFFIX = re.compile(r"-r[0-9a-f]{8}\Z")
_FILE_PATH_ID = 2147483546  # field id of `file_path` in position deletes, fixed by Iceberg
_STATUS, _DATA_FILE = 0, 2
_PATH, _FORMAT, _BYTES, _LOWER, _UPPER, _CONTENT, _REFERENCED = 100, 101, 104, 125, 128, 134, 143
_MANIFEST_PATH, _MANIFEST_LENGTH = 500, 501


@dataclass(frozen=True)
class WarehouseMove:
    """Maps a location below one warehouse to the same location below another; other locations stay.

    >>> move = WarehouseMove("/a/lake", "/a/lake/lake")
    >>> move("/a/lake/x"), move("file:/a/lake/x"), move("/a/lakes/x")
    ('/a/lake/lake/x', 'file:/a/lake/lake/x', '/a/lakes/x')
    """

    old: str
    new: str

    def __call__(self, location: str) -> str:
        """Return the new location of a location."""
        for scheme in ("", "file:", "file://") if local_path(self.old) is not None else ("",):
            old = scheme + self.old.rstrip("/")
            if location == old or location.startswith(old + "/"):
                new_scheme = scheme if local_path(self.new) is not None else ""
                return new_scheme + self.new.rstrip("/") + location[len(old) :]
        return location

    def applies_to(self, location: str) -> bool:
        """Return whether a location is below the old warehouse."""
        return self(location) != location

    def choose_new_path(self, location: str) -> str:
        """Return the path that a file is rewritten to."""
        folder, _, name = self(location).rpartition("/")
        name_uuid = uuid.uuid5(uuid.NAMESPACE_URL, f"{self.new}\n{location}")
        if name.endswith(".metadata.json"):
            number = re.match(r"v?(\d+)", name)
            return f"{folder}/{int(number[1]) if number else 0:05d}-{name_uuid}.metadata.json"
        stem, dot, ending = name.rpartition(".")
        return f"{folder}/{_REWRITTEN_SUFFIX.sub('', stem)}-r{name_uuid.hex[:8]}{dot}{ending}"


class MetadataRewriter:
    """Rewrites files for another warehouse, each once however many versions share it."""

    def __init__(self, store: "Store", move: WarehouseMove) -> None:
        self.store = store
        self.move = move
        self.file_count = 0
        self._lists: dict[str, str] = {}
        self._manifests: dict[str, tuple[str, int]] = {}
        self._deletes: dict[str, tuple[str, int, tuple[str, str] | None]] = {}

    def rewrite_manifest_lists(self, version: str, *, with_older: bool = False) -> None:
        """Rewrite the manifest lists that are needed to read a version, with their manifests.

        With `with_older` also those of older snapshots, if they still exist: a stream reads an append log one snapshot
        after the other.
        """
        metadata = self._read_metadata(version)
        snapshot_ids = {metadata.get("current-snapshot-id")} | {
            ref["snapshot-id"] for ref in metadata.get("refs", {}).values()
        }
        for snapshot in metadata.get("snapshots", ()):
            if snapshot["snapshot-id"] in snapshot_ids and self.move.applies_to(snapshot.get("manifest-list", "")):
                self._rewrite_manifest_list(snapshot["manifest-list"], has_no_files(snapshot.get("summary")))
            elif with_older and self.move.applies_to(snapshot.get("manifest-list", "")):
                with suppress(CorruptData):
                    self._rewrite_manifest_list(snapshot["manifest-list"], has_no_files(snapshot.get("summary")))

    def rewrite_metadata(self, version: str, find_new_location: Callable[[str], str]) -> None:
        """Rewrite a metadata file; `find_new_location` returns where other versions are now."""
        metadata, move = self._read_metadata(version), self.move
        metadata["location"] = move(metadata["location"])
        for snapshot in metadata.get("snapshots", ()):
            if "manifest-list" in snapshot:
                snapshot["manifest-list"] = self._lists.get(snapshot["manifest-list"]) or move(
                    snapshot["manifest-list"]
                )
            if "manifests" in snapshot:
                snapshot["manifests"] = [move(path) for path in snapshot["manifests"]]
            if table_properties.LOG in snapshot.get("summary", {}):
                snapshot["summary"][table_properties.LOG] = find_new_location(snapshot["summary"][table_properties.LOG])
        for entry in metadata.get("metadata-log", ()):
            entry["metadata-file"] = find_new_location(entry["metadata-file"])
        for entry in [*metadata.get("statistics", ()), *metadata.get("partition-statistics", ())]:
            entry["statistics-path"] = move(entry["statistics-path"])
        metadata["properties"] = {name: move(value) for name, value in metadata.get("properties", {}).items()}
        self._write_file(move.choose_new_path(version), json.dumps(metadata).encode())

    def _read_metadata(self, version: str) -> dict[str, Any]:
        contents = read_bytes(self.store.io, self.move(version))
        try:
            metadata = json.loads(gzip.decompress(contents) if contents[:2] == b"\x1f\x8b" else contents)
        except (ValueError, OSError) as error:
            raise damaged_file_error(self.move(version), "it can't be read as table metadata") from error
        return cast("dict[str, Any]", metadata)

    def _rewrite_manifest_list(self, path: str, may_be_empty: bool) -> None:
        if path in self._lists:
            return

        def rewrite_record(record: "Record", positions: dict[int, int]) -> None:
            manifest = record[positions[_MANIFEST_PATH]]
            if self.move.applies_to(manifest):
                record[positions[_MANIFEST_PATH]], record[positions[_MANIFEST_LENGTH]] = self._rewrite_manifest(
                    manifest
                )

        self._lists[path] = self._rewrite_avro(path, rewrite_record, may_be_empty)[0]

    def _rewrite_manifest(self, path: str) -> tuple[str, int]:
        if path not in self._manifests:
            self._manifests[path] = self._rewrite_avro(path, self._rewrite_entry)
        return self._manifests[path]

    def _rewrite_entry(self, record: "Record", positions: dict[int, int]) -> None:
        file = record[positions[_DATA_FILE]]
        has_position_deletes = positions.get(_CONTENT) is not None and file[positions[_CONTENT]] == int(
            DataFileContent.POSITION_DELETES
        )
        path = file[positions[_PATH]]
        if has_position_deletes and record[positions[_STATUS]] != int(ManifestEntryStatus.DELETED):
            new_path, size, bounds = self._rewrite_deletes_once(path, file[positions[_FORMAT]])
            file[positions[_PATH]], file[positions[_BYTES]] = new_path, size
            for field, bound in zip((_LOWER, _UPPER), bounds or (), strict=False):
                bounds_by_field = dict(file[positions[field]] or {})
                if _FILE_PATH_ID in bounds_by_field:
                    file[positions[field]] = {**bounds_by_field, _FILE_PATH_ID: bound.encode()}
        else:
            file[positions[_PATH]] = self.move(path)
        if positions.get(_REFERENCED) is not None and file[positions[_REFERENCED]]:
            file[positions[_REFERENCED]] = self.move(file[positions[_REFERENCED]])

    def _rewrite_deletes_once(self, path: str, kind: str) -> tuple[str, int, tuple[str, str] | None]:
        """Rewrite a file of position deletes, which name the data files that they apply to."""
        if path not in self._deletes:
            if kind.upper() != "PARQUET" or not self.move.applies_to(path):
                what = f"{path} holds row deletes in a format that can't be moved"
                raise RunnelError("RELOCATE_DELETES", what, fix="move the folder back, and compact the table first")
            self._deletes[path] = self._rewrite_deletes(path)
        return self._deletes[path]

    def _rewrite_deletes(self, path: str) -> tuple[str, int, tuple[str, str] | None]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with self.store.io.new_input(self.move(path)).open() as stream:
                table = pq.read_table(cast(Any, stream))
        except FileNotFoundError as error:
            raise missing_file_error(self.move(path)) from error
        except pa.ArrowException as error:
            raise damaged_file_error(self.move(path), "it can't be read as Parquet") from error
        files = [self.move(str(name)) for name in table["file_path"].to_pylist()]
        column = table.schema.get_field_index("file_path")
        field = table.schema.field(column)
        table = table.set_column(column, field, pa.array(files, field.type))
        table = table.sort_by([("file_path", "ascending"), ("pos", "ascending")])
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="zstd")
        contents = buffer.getvalue().to_pybytes()
        return (
            self._write_file(self.move.choose_new_path(path), contents),
            len(contents),
            (min(files), max(files)) if files else None,
        )

    def _rewrite_avro(
        self, path: str, rewrite_record: "Callable[[Record, dict[int, int]], None]", may_be_empty: bool = False
    ) -> tuple[str, int]:
        """Rewrite an Avro file with changed records and everything else as it was; return its path and its size."""
        source, target = self.move(path), self.move.choose_new_path(path)
        try:
            with AvroFile["Record"](self.store.io.new_input(source)) as reader:
                records, schema, header = list(reader), reader.schema, dict(reader.header.meta)
                is_complete = ended_cleanly(reader, may_be_empty=may_be_empty)
        except FileNotFoundError as error:
            raise missing_file_error(source) from error
        except Exception as error:  # a damaged Avro file can raise anything in the decoder
            raise damaged_file_error(source, "it can't be read as Avro") from error
        if not is_complete:
            raise damaged_file_error(source, "it is cut off")
        positions = _find_field_positions(schema.as_struct())
        for record in records:
            rewrite_record(record, positions)
        name = json.loads(header.pop("avro.schema")).get("name", "record")
        output = self.store.io.new_output(target)
        with AvroOutputFile["Record"](output, schema, name, metadata=header) as writer:
            writer.write_block(records)
        self._count_file()
        return target, len(output)

    def _write_file(self, location: str, contents: bytes) -> str:
        write_bytes(self.store.io, location, contents)
        self._count_file()
        return location

    def _count_file(self) -> None:
        self.file_count += 1
        failpoints.reach(failpoints.RELOCATE_FILE)


def _find_field_positions(struct: StructType) -> dict[int, int]:
    """Return the position of each field in its record, by field id, for records and the data file nested in them."""
    positions = {field.field_id: position for position, field in enumerate(struct.fields)}
    for field in struct.fields:
        if field.field_id == _DATA_FILE and isinstance(field.field_type, StructType):
            positions |= {inner.field_id: position for position, inner in enumerate(field.field_type.fields)}
    return positions
