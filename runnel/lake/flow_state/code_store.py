"""The code of runs, kept in the catalog database by the hash of its contents.

A manifest names the files by path; its hash is the id of the code. What two runs share is kept once.
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

from runnel.errors import Broken
from runnel.lake.catalog import schema

FILE, MANIFEST = "file", "manifest"
_AT_ONCE = 500


@dataclass(frozen=True)
class Code:
    """The files that make up a project's code, by their path below its folder, written with /."""

    files: Mapping[str, bytes]

    @cached_property
    def hashes(self) -> Mapping[str, str]:
        """Return the hash of each file, by path."""
        return {path: _hash(content) for path, content in sorted(self.files.items())}

    @cached_property
    def manifest(self) -> bytes:
        """Return which file has which hash, as it is kept."""
        return json.dumps(self.hashes, sort_keys=True).encode()

    @cached_property
    def id(self) -> str:
        """Return what the code is known by."""
        return _hash(self.manifest)

    def write(self, folder: Path) -> None:
        """Write the files below a folder."""
        for path, content in self.files.items():
            target = folder.joinpath(*PurePosixPath(path).parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def keep(connection: Connection, code: Code, now: str) -> None:
    """Keep code, or note that it is in use again. The caller holds the lake's lock.

    It stays while the pin of its run lasts, and as long as a retained commit or a known result names it.
    """
    columns = schema.code.c
    again = schema.code.update().where(columns.hash == code.id).values(kept_at=now)
    if connection.execute(again).rowcount:
        return  # a manifest never goes before its files
    contents = {_hash(content): content for content in code.files.values()}
    known = {row.hash for row in _having(connection, list(contents), sa.select(columns.hash))}
    rows = [_row(FILE, name, content, now) for name, content in contents.items() if name not in known]
    connection.execute(schema.code.insert(), [*rows, _row(MANIFEST, code.id, code.manifest, now)])


def load(connection: Connection, code_id: str) -> Code | None:
    """Return code by its id, or None where it is not kept any more."""
    columns = schema.code.c
    found = connection.execute(sa.select(columns.content).where(columns.hash == code_id)).scalar()
    if found is None:
        return None
    hashes = files_of(found)
    rows = _having(connection, sorted(set(hashes.values())), sa.select(columns.hash, columns.content))
    contents = {row.hash: zlib.decompress(row.content) for row in rows}
    if missing := sorted(path for path, name in hashes.items() if name not in contents):
        what = f"the code {code_id[:12]} lacks its file {missing[0]}"
        raise Broken("CODE_INCOMPLETE", what, fix="restore the catalog database from a backup")
    return Code({path: contents[name] for path, name in hashes.items()})


def files_of(manifest: bytes) -> dict[str, str]:
    """Return the hashes that a manifest, as it is stored, gives to paths."""
    found: dict[str, str] = json.loads(zlib.decompress(manifest))
    return found


def _having(connection: Connection, hashes: Sequence[str], wanted: "sa.Select[Any]") -> "Iterator[sa.Row[Any]]":
    """Yield what `wanted` says of some hashes."""
    for start in range(0, len(hashes), _AT_ONCE):
        yield from connection.execute(wanted.where(schema.code.c.hash.in_(hashes[start : start + _AT_ONCE])))


def _row(kind: str, name: str, content: bytes, now: str) -> dict[str, object]:
    return {"hash": name, "kind": kind, "content": zlib.compress(content), "kept_at": now}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
