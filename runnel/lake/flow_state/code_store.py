"""Store the code of runs in the catalog database, addressed by the hash of its contents.

A manifest lists the files by path; its hash is the id of the code. A file that several runs share is stored once.
"""

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import CorruptData
from runnel.lake.catalog import schema

FILE, MANIFEST = "file", "manifest"
_BATCH_SIZE = 500


@dataclass(frozen=True)
class ProjectCode:
    """The files that make up a project's code, by their path below its folder, written with /."""

    files: Mapping[str, bytes]

    @cached_property
    def hashes(self) -> Mapping[str, str]:
        """Return the hash of each file, by path."""
        return {path: _hash_content(content) for path, content in sorted(self.files.items())}

    @cached_property
    def manifest(self) -> bytes:
        """Return the hash of each file as JSON, as it is stored."""
        return json.dumps(self.hashes, sort_keys=True).encode()

    @cached_property
    def id(self) -> str:
        """Return the id of the code: the hash of its manifest."""
        return _hash_content(self.manifest)

    def write(self, folder: Path) -> None:
        """Write the files below a folder."""
        for path, content in self.files.items():
            target = folder.joinpath(*PurePosixPath(path).parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def store_code(connection: Connection, code: ProjectCode, now: str) -> None:
    """Store code, or record that it is in use again. The caller holds the lake's lock.

    It is retained as long as its run has a pin, or a retained commit or result refers to it.
    """
    columns = schema.code.c
    mark_used = schema.code.update().where(columns.hash == code.id).values(kept_at=now)
    if connection.execute(mark_used).rowcount:
        return  # if the manifest exists, its files do, too
    contents = {_hash_content(content): content for content in code.files.values()}
    existing_hashes = {row.hash for row in _select_by_hash(connection, list(contents), sa.select(columns.hash))}
    rows = [_code_row(FILE, name, content, now) for name, content in contents.items() if name not in existing_hashes]
    connection.execute(schema.code.insert(), [*rows, _code_row(MANIFEST, code.id, code.manifest, now)])


def load_code(connection: Connection, code_id: str) -> ProjectCode | None:
    """Return code by its id, or None if it is not stored any more."""
    columns = schema.code.c
    manifest = connection.execute(sa.select(columns.content).where(columns.hash == code_id)).scalar()
    if manifest is None:
        return None
    hashes = parse_manifest(manifest)
    rows = _select_by_hash(connection, sorted(set(hashes.values())), sa.select(columns.hash, columns.content))
    contents = {row.hash: zlib.decompress(row.content) for row in rows}
    if missing := sorted(path for path, name in hashes.items() if name not in contents):
        what = f"the code {code_id[:12]} lacks its file {missing[0]}"
        raise CorruptData("CODE_INCOMPLETE", what, fix="restore the catalog database from a backup")
    return ProjectCode({path: contents[name] for path, name in hashes.items()})


def parse_manifest(manifest: bytes) -> dict[str, str]:
    """Return the hash of each path from a manifest as it is stored."""
    hashes: dict[str, str] = json.loads(zlib.decompress(manifest))
    return hashes


def _select_by_hash(connection: Connection, hashes: Sequence[str], query: "sa.Select[Any]") -> "Iterator[sa.Row[Any]]":
    """Yield the rows of `query` for some hashes."""
    for start in range(0, len(hashes), _BATCH_SIZE):
        yield from connection.execute(query.where(schema.code.c.hash.in_(hashes[start : start + _BATCH_SIZE])))


def _code_row(kind: str, name: str, content: bytes, now: str) -> dict[str, object]:
    return {"hash": name, "kind": kind, "content": zlib.compress(content), "kept_at": now}


def _hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
