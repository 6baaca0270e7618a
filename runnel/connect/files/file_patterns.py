"""Find the files that a user named, by path or by glob, and detect their format.

Reads names and sizes only, never contents.
"""

import glob
import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from runnel.connect.files.compression import detect_compression
from runnel.declare.options.file_formats import COMPRESSED_ENDINGS, ENDINGS, FORMATS, infer_format
from runnel.errors import Mistake, did_you_mean, find_nearest, join_names
from runnel.names import quote_value

CSV, JSONL, PARQUET = "csv", "jsonl", "parquet"
_MAX_LISTED = 1000  # files of a folder that an error looks at
JSON, AVRO, ORC, XML, TEXT, BINARY = "json", "avro", "orc", "xml", "text", "binary"


KeyOrder = tuple[tuple[str, "KeyOrder"], ...]
"""The keys of JSON objects in order, each with the order of the keys inside its values."""


@dataclass(frozen=True)
class FileSplit:
    """Where a split of a large file is in the whole file, so that positions of rows are those of the whole file.

    Of CSV and JSON lines, a split is a copy of some lines; one of CSV begins with `header_lines` lines of the header,
    whose columns are `header`; one of JSON lines has the `key_order` of the whole file. Of Parquet, the file itself is
    read, from `first_row` up to `end_row`, counted from 0.
    """

    lines_before: int = 0  # lines of the whole file before those of the split
    bytes_before: int = 0  # what to add to the position of a byte of the copy
    header_lines: int = 0
    header: tuple[str, ...] = ()
    first_row: int = 0
    end_row: int = 0
    key_order: KeyOrder = ()

    def find_line(self, line: int) -> int:
        """Return the line of the whole file for a line of the copy, both counted from 1.

        >>> FileSplit(lines_before=100, header_lines=1).find_line(2)
        101
        """
        return line if line <= self.header_lines else line - self.header_lines + self.lines_before


@dataclass(frozen=True)
class LocalFile:
    """A file to load: the user's name for it, its absolute path, and its size and time when it was found.

    If only a split of a large file is read, `split` says which.
    """

    name: str
    path: str
    bytes: int
    modified_at: float
    split: FileSplit | None = None

    @property
    def compression(self) -> str | None:
        """Return the compression that its name tells, if any."""
        return detect_compression(self.path)

    @property
    def extension(self) -> str:
        """Return its extension, such as `.csv`, without `.gz` and the like."""
        path = Path(self.path.lower())
        return Path(path.stem).suffix if self.compression else path.suffix

    def find_line(self, line: int) -> int:
        """Return the line of the whole file for a line of what is read."""
        return self.split.find_line(line) if self.split is not None else line


def find_files(patterns: Sequence[str]) -> tuple[LocalFile, ...]:
    """Return the files that paths and globs match, each once, in the order of the patterns and sorted within each."""
    if not patterns:
        raise Mistake(
            "LOAD_NO_FILE", "no file was named", fix="name files or globs: runnel load ods.orders 'data/*.csv'"
        )
    files: dict[str, LocalFile] = {}
    for pattern in patterns:
        for name in _expand_pattern(pattern):
            file = _stat_file(name)
            files.setdefault(os.path.realpath(file.path), file)
    return tuple(files.values())


def make_local_file(name: str, path: Path) -> LocalFile:
    """Return an existing file under a display name that tells users what it contains."""
    file_stat = path.stat()
    return LocalFile(name, str(path), file_stat.st_size, file_stat.st_mtime)


def detect_format(files: Sequence[LocalFile], requested_format: str | None = None) -> str:
    """Return the format of all files, from `requested_format` or from their names."""
    if requested_format is not None:
        if requested_format not in FORMATS:
            what = f"{quote_value(requested_format)} is not a format" + did_you_mean(requested_format, FORMATS)
            raise Mistake("LOAD_FORMAT", what, fix=f"use one of {', '.join(FORMATS)}")
        return requested_format
    formats = {file.name: ENDINGS.get(file.extension) for file in files}
    unknown = [name for name, format in formats.items() if format is None]
    if unknown:
        what = f"the name of {join_names(unknown)} does not show the format"
        raise Mistake("LOAD_FORMAT", what, fix=f"name it: --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if len(set(formats.values())) > 1:
        examples = {format: name for name, format in reversed(formats.items())}
        what = "one load reads files of one format, but these have several: " + join_names(
            f"{name} ({format})" for format, name in examples.items()
        )
        raise Mistake("LOAD_FORMATS_MIXED", what, fix="load each format by itself, or narrow the glob")
    return str(next(iter(formats.values())))


def check_unchanged(files: Sequence[LocalFile]) -> None:
    """Raise if a file changed since it was found: the rows read may be a mix of old and new ones."""
    for file in files:
        try:
            file_stat = os.stat(file.path)  # noqa: PTH116
        except OSError:
            file_stat = None
        if file_stat is None or (file_stat.st_size, file_stat.st_mtime) != (file.bytes, file.modified_at):
            what = f"{file.name} changed while it was being loaded; nothing was loaded"
            raise Mistake("LOAD_FILE_CHANGED", what, at=file.name, fix="load it again when its writer has finished")


def _expand_pattern(pattern: str) -> list[str]:
    if "\0" in pattern:
        raise Mistake("LOAD_NO_FILE", f"{quote_value(pattern)} is not a path", fix="name a file or a glob")
    path = Path(pattern)
    if path.is_dir():
        raise _describe_folder(pattern)
    if os.path.lexists(pattern) or not glob.has_magic(pattern):
        if not path.exists():
            raise _describe_no_match(pattern, is_glob=False)
        return [pattern]
    matches = sorted(name for name in glob.glob(pattern, recursive=True) if Path(name).is_file())  # noqa: PTH207
    if not matches:
        raise _describe_no_match(pattern, is_glob=True)
    return matches


def _describe_folder(pattern: str) -> Mistake:
    folder = pattern.rstrip("/") or "/"
    ending, has_subfolders = _find_usual_ending(Path(pattern))
    globs = [f"'{folder}/*{ending}'", f"'{folder}/**/*{ending}'"]
    fix = f"name the files in it: {globs[1] if has_subfolders else f'{globs[0]}, or {globs[1]} with subfolders'}"
    return Mistake("LOAD_DIRECTORY", f"{pattern} is a folder, not a file", fix=fix)


def _find_usual_ending(folder: Path) -> tuple[str, bool]:
    """Return the ending of most files in a folder, such as `.csv.gz`, and whether they are only in subfolders."""
    for paths, in_subfolders in ((folder.glob("*"), False), (folder.glob("**/*"), True)):
        files = [path for path in islice(paths, _MAX_LISTED) if path.is_file() and path.name[0] != "."]
        endings = Counter(ending for path in files if (ending := _read_ending(path.name)))
        if endings:
            return endings.most_common(1)[0][0], in_subfolders
    return ".csv", False


def _read_ending(name: str) -> str | None:
    """Return the ending of a file that can be loaded, as it is written.

    >>> _read_ending("a.b.CSV.gz"), _read_ending("a.jsonl"), _read_ending("README.md")
    ('.CSV.gz', '.jsonl', None)
    """
    suffixes = Path(name).suffixes
    count = 2 if suffixes and suffixes[-1].lower() in COMPRESSED_ENDINGS else 1
    return "".join(suffixes[-count:]) if infer_format(name) is not None else None


def _describe_no_match(pattern: str, *, is_glob: bool) -> Mistake:
    folder = Path(pattern).parent
    while glob.has_magic(str(folder)) or not folder.is_dir():
        if folder == folder.parent:
            break
        folder = folder.parent
    file_names = _list_file_names(folder)
    close = find_nearest(Path(pattern).name, file_names) or (file_names[0] if file_names else None)
    what = f"no file matches {quote_value(pattern)}" if is_glob else f"there is no file {quote_value(pattern)}"
    hint = f"; the folder {folder} has `{close}`" if close else f"; the folder {folder} has no files"
    return Mistake("LOAD_NO_FILE", what + hint, fix="check the path; quote a glob so that the shell does not expand it")


def _list_file_names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.is_file() and entry.name[0] != ".")
    except OSError:
        return []


def _stat_file(name: str) -> LocalFile:
    path = os.path.abspath(name)  # noqa: PTH100 - keeps the name of a symlink, and with it the extension
    try:
        file_stat = os.stat(path)  # noqa: PTH116
        if not stat.S_ISREG(file_stat.st_mode):
            what = f"{name} is not a regular file"
            raise Mistake("LOAD_FILE_UNREADABLE", what, at=name, fix="write it to a file first: it is read twice")
        with open(path, "rb"):  # noqa: PTH123
            pass
    except OSError as error:
        what = f"{name} can't be read: {error.strerror}"
        raise Mistake("LOAD_FILE_UNREADABLE", what, at=name, fix="check its permissions") from error
    if file_stat.st_size == 0:
        what = f"{name} is empty (0 bytes)"
        raise Mistake("LOAD_FILE_EMPTY", what, at=name, fix="leave it out, or see why its writer wrote nothing")
    return LocalFile(name, path, file_stat.st_size, file_stat.st_mtime)
