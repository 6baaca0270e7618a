"""Say which source files the rows of a data file came from: by its name, or by runs of rows in its footer. Pure.

A source file has an owner, a prefix of 16 hexadecimal digits. The name of a data file with the rows of one source file
starts with it. A shared data file has the rows of several; its footer lists them in the order of the rows.

Rows also belong to a piece: what was written at once for one owner. It starts with the id of the data file that the
rows were first written to, and stays when they are moved to another file. So two versions have the same rows of a
source file if they have the same pieces of its owners.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

OWNERS_KEY = "runnel.owners"  # in the footer of a shared data file
SHARED_FILE_BYTES = 8 * 1024 * 1024  # replacing the rows of one source file rewrites the data file
MAX_RUNS = 4096  # a footer stays small, since every reader of the file reads it
_SHARED_PREFIX = "shared-"
_UNKNOWN = -1  # for the number of a row in a footer
_PREFIX_PATTERN = re.compile(r"([0-9a-f]{16}-)[0-9a-f]{32}")
_ID_PATTERN = re.compile(r"(?:shared-|[0-9a-f]{16}-)?([0-9a-f]{32})")


@dataclass(frozen=True)
class RowRun:
    """Adjacent rows of a data file that belong to one owner and one piece.

    `first` is the number, from 0, that the first of them had among the rows of the owner in the data file that they
    were first written to; None if rows between them were removed since.
    """

    owner: str
    piece: str
    rows: int
    first: int | None = 0


@dataclass(frozen=True)
class OwnedRow:
    """A row of an owner and a piece; `number` is as `first` of a run."""

    owner: str
    piece: str
    number: int | None


def make_owner_prefix(path: str) -> str:
    """Return the owner of the rows of a source file: the prefix for the names of its data files.

    >>> make_owner_prefix("data/a.csv")
    '6079cfbce3af04bb-'
    """
    return hashlib.sha256(path.encode()).hexdigest()[:16] + "-"


def read_owner_prefix(location: str) -> str | None:
    """Return the owner in a data file's name; None if the file is shared, or its rows have no source file."""
    match = _PREFIX_PATTERN.match(read_file_name(location))
    return match[1] if match else None


def make_file_name(owner: str | None, file_id: str | None = None) -> str:
    """Return a name for a data file with the rows of an owner, or for a shared one, with a new id if none is passed."""
    return f"{_SHARED_PREFIX if owner is None else owner}{file_id or uuid.uuid4().hex}.parquet"


def make_rewritten_name(location: str) -> str:
    """Return a new name for a file with the rows that an erasure left in a data file; it keeps owner and id.

    >>> make_rewritten_name("a/shared-0123456789abcdef0123456789abcdef.parquet")[:40]
    'shared-0123456789abcdef0123456789abcdef-'
    """
    match = _ID_PATTERN.match(read_file_name(location))
    return f"{match[0]}-{uuid.uuid4().hex[:8]}.parquet" if match else f"{uuid.uuid4().hex}.parquet"


def is_shared(location: str) -> bool:
    """Tell whether the footer of a data file lists the owners of its rows.

    >>> is_shared("a/shared-0123456789abcdef0123456789abcdef.parquet"), is_shared("a/shared-x.parquet")
    (True, False)
    """
    name = read_file_name(location)
    return name.startswith(_SHARED_PREFIX) and _ID_PATTERN.match(name) is not None


def read_file_id(location: str) -> str:
    """Return the id in a data file's name, which is also the origin of pieces; else the whole name.

    >>> read_file_id("a/6079cfbce3af04bb-0123456789abcdef0123456789abcdef.parquet")
    '0123456789abcdef0123456789abcdef'
    """
    name = read_file_name(location)
    match = _ID_PATTERN.match(name)
    return match[1] if match else name


def read_origin(piece: str) -> str:
    """Return the id of the data file that the rows of a piece were first written to.

    >>> read_origin("0123456789abcdef0123456789abcdef.7")
    '0123456789abcdef0123456789abcdef'
    """
    return piece.partition(".")[0]


def encode_runs(location: str, runs: Sequence[RowRun]) -> str:
    """Return the text for the footer of a data file: for each run the owner and the rows.

    If the rows were moved or some were removed, the piece follows, and the number of the first row unless it is 0.
    """
    own_id, owner_rows = read_file_id(location), dict[str, int]()
    texts: list[list[str | int]] = []
    for number, run in enumerate(runs):
        first = owner_rows.get(run.owner, 0)
        owner_rows[run.owner] = first + run.rows
        text: list[str | int] = [run.owner.removesuffix("-"), run.rows]
        if run.piece and (run.piece, run.first) != (f"{own_id}.{number}", first):
            text += [run.piece] if run.first == 0 else [run.piece, _UNKNOWN if run.first is None else run.first]
        texts.append(text)
    return json.dumps(texts, separators=(",", ":"))


def decode_runs(location: str, text: str | bytes) -> tuple[RowRun, ...]:
    """Return the runs that the footer of a data file lists.

    >>> decode_runs("shared-0123456789abcdef0123456789abcdef.parquet", '[["6079cfbce3af04bb",2]]')[0].piece
    '0123456789abcdef0123456789abcdef.0'
    """
    own_id, owner_rows, runs = read_file_id(location), dict[str, int](), list[RowRun]()
    for number, (owner, rows, *moved) in enumerate(json.loads(text)):
        first: int | None = owner_rows.get(owner, 0)
        owner_rows[owner] = owner_rows.get(owner, 0) + rows
        piece = moved[0] if moved else f"{own_id}.{number}"
        if moved:
            first = 0 if len(moved) == 1 else None if moved[1] == _UNKNOWN else moved[1]
        runs.append(RowRun(f"{owner}-", piece, rows, first))
    return tuple(runs)


def join_runs(runs: Iterable[RowRun]) -> list[RowRun]:
    """Return runs with adjacent ones of the same owner and piece joined, if their rows follow each other.

    >>> join_runs([RowRun("a-", "p", 1, 0), RowRun("a-", "p", 2, 1), RowRun("b-", "q", 1)])
    [RowRun(owner='a-', piece='p', rows=3, first=0), RowRun(owner='b-', piece='q', rows=1, first=0)]
    """
    joined: list[RowRun] = []
    for run in runs:
        if joined and _continues(joined[-1], run):
            joined[-1] = replace(joined[-1], rows=joined[-1].rows + run.rows)
        elif run.rows:
            joined.append(run)
    return joined


def _continues(previous: RowRun, run: RowRun) -> bool:
    if (previous.owner, previous.piece) != (run.owner, run.piece):
        return False
    next_number = None if previous.first is None else previous.first + previous.rows
    return not run.piece or run.first == next_number  # without a piece, they are new


def read_file_name(location: str) -> str:
    """Return the last part of a file's location, which does not change if the warehouse is moved.

    >>> read_file_name("file:///lake/ods/orders-1/data/x.parquet")
    'x.parquet'
    """
    return location.rpartition("/")[2]
