"""Divide the files of a source into work units: some files each, in order, or a split of a large file."""

import codecs
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from runnel.connect.files.file_patterns import CSV, JSONL, PARQUET, LocalFile
from runnel.connect.files.load_request import LoadRequest

UNIT_BYTES = 64 << 20
SHARED_UNIT_BYTES = 16 << 20  # at least, if files share data files: each unit writes data files of its own
MOST_FILES = 1000
_FILE_BYTES = 64 << 10  # what opening a file costs, as if it had that many more bytes
# Of these encodings, no character but the line feed contains its byte.
_LINE_ENCODINGS = ("utf-8", "ascii", "iso8859", "cp125", "koi8", "gb", "big5", "euc", "shift_jis", "cp932")


@dataclass(frozen=True)
class ByteRange:
    """A split of a file: the lines that begin after `start`, up to `end`, or the row groups with their middle there.

    The line that begins at byte 0 belongs to the first range. `lines_before` is None until all ranges were inspected.
    """

    start: int
    end: int
    lines_before: int | None = None


@dataclass(frozen=True)
class FileUnit:
    """Some files of a source, or a range of one. The path of a file is absolute, or the address of an object."""

    files: tuple[LocalFile, ...]
    byte_range: ByteRange | None = None


def divide_into_units(
    files: Sequence[LocalFile],
    parallel_units: int,
    split_bytes: int = 0,
    splittable: Collection[str] = (),
    *,
    least_bytes: int = 0,
) -> list[FileUnit]:
    """Return units of about `UNIT_BYTES`, or smaller ones, so that there are a few for each of the parallel tasks.

    A larger file than `split_bytes` whose name is `splittable` is divided into ranges of at most that size.

    Units are not smaller than `least_bytes`, where each file counts as a few more bytes than it has.

    >>> files = [LocalFile(name, f"/{name}", 3 << 20, 0.0) for name in "abcde"]
    >>> [[file.name for file in unit.files] for unit in divide_into_units(files, 1)]
    [['a', 'b', 'c'], ['d', 'e']]
    >>> divide_into_units([LocalFile("a", "/a", 10, 0.0)], 1, 7, {"a"})[1].byte_range
    ByteRange(start=5, end=10, lines_before=None)
    """
    total = sum(file.bytes + _FILE_BYTES for file in files)
    limit = min(UNIT_BYTES, max(total // (2 * max(1, parallel_units)) + 1, least_bytes))
    units: list[FileUnit] = []
    open_files: list[LocalFile] = []
    size = 0
    for file in files:
        if file.bytes > split_bytes and file.name in splittable:
            units += [FileUnit(tuple(open_files))] if open_files else []
            units += [FileUnit((file,), byte_range) for byte_range in _divide_file(file, split_bytes)]
            open_files, size = [], 0
            continue
        if open_files and (size >= limit or len(open_files) >= MOST_FILES):
            units.append(FileUnit(tuple(open_files)))
            open_files, size = [], 0
        open_files.append(file)
        size += file.bytes + _FILE_BYTES
    return [*units, FileUnit(tuple(open_files))] if open_files else units


def _divide_file(file: LocalFile, split_bytes: int) -> list[ByteRange]:
    count = -(-file.bytes // split_bytes)
    limits = [file.bytes * number // count for number in range(count + 1)]
    return [ByteRange(start, end) for start, end in pairwise(limits)]


def is_splittable(file: LocalFile, request: LoadRequest) -> bool:
    """Tell whether splits of a file can be read by themselves, as far as its name and the options say it.

    Parquet has row groups, and JSON lines have lines. A line of CSV is a record only if no value contains a line end.
    """
    if request.format == PARQUET:
        return True
    if file.compression is not None:
        return False
    if request.format == JSONL:
        return _has_plain_line_ends(request.document.encoding)
    has_line_records = request.format == CSV and not request.csv.multiline and not request.csv.comment
    return has_line_records and _has_plain_line_ends(request.csv.encoding)


def _has_plain_line_ends(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name.startswith(_LINE_ENCODINGS)
    except LookupError:  # reading the file tells it
        return False
