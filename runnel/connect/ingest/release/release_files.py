"""Write the files that a release of corrected rows reads: the rows of each source file, as people corrected them.

Knows where each of their lines came from, so that rows that are still bad keep their file and position.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runnel.connect.files.file_patterns import CSV, JSONL, LocalFile, detect_format, make_local_file
from runnel.connect.ingest.read_request import build_request
from runnel.connect.ingest.release.correction_file import (
    CorrectedRow,
    CorrectionFile,
    CsvLayout,
    is_csv,
    read_correction_file,
    read_layout,
    restore_layout,
)
from runnel.connect.ingest.release.release_text import ReleaseTextWriter, choose_extension
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, did_you_mean, join_names
from runnel.lake.iceberg.data_file_owners import make_owner_prefix

_OPTIONS_OF_ORIGINALS = ("header", "encoding", "skip")  # files to release are UTF-8 and start with a header


@dataclass(frozen=True)
class StillBadRow:
    """A row that can't be released, with its current reason; `line` is its line in the corrected file, if any."""

    row: QuarantinedRow
    line: int | None = None


@dataclass(frozen=True)
class _ReleaseFile:
    """A file to read: the file that its rows belong to, and the rows by their first line, if they are known."""

    origin: QuarantinedRow
    first_lines: tuple[int, ...] = ()
    rows: tuple[CorrectedRow, ...] = ()

    def find_row(self, line: int) -> CorrectedRow | None:
        index = bisect_right(self.first_lines, line) - 1
        return self.rows[index] if index >= 0 else None


@dataclass(frozen=True)
class PreparedRelease:
    """Files to read with `source`. `replaced_rows` leave the quarantine; those that are still bad return to it.

    `uncorrected` rows stay in quarantine unread; `missing` counts those that the corrected file does not have, and
    `unknown` its rows that are not in quarantine any more.
    """

    source: Source
    files: tuple[LocalFile, ...]
    replaced_rows: tuple[QuarantinedRow, ...]
    uncorrected: tuple[StillBadRow, ...] = ()
    missing: int = 0
    unknown: int = 0
    origins: Mapping[str, _ReleaseFile] = field(default_factory=dict)

    def check_counts(self, accepted: int, bad: int) -> None:
        """Raise if the files to read did not have exactly one row for each row that leaves the quarantine."""
        if all(file.rows for file in self.origins.values()):
            check_row_count(len(self.replaced_rows), accepted + bad, self.files[0].name)

    @property
    def owners(self) -> dict[str, str]:
        """Return the owner of the rows of each file to read, by the file's name."""
        return {
            name: file.origin.owner or make_owner_prefix(file.origin.file)
            for name, file in self.origins.items()
            if file.origin.file is not None
        }

    def restore_origin(self, row: QuarantinedRow) -> StillBadRow:
        """Return a bad row of a file to read as a row of the file that it came from first, at its position there."""
        release_file = self.origins[row.file or ""]
        origin = release_file.origin
        bad_row = replace(row, file=origin.file, owner=self.owners.get(row.file or ""))
        corrected_row = release_file.find_row(int(row.position.split()[-1])) if row.position else None
        if corrected_row is None or row.place is None:
            return StillBadRow(bad_row)
        place = corrected_row.row.place
        reason = row.reason.replace(row.place, place) if place else row.cause
        return StillBadRow(replace(bad_row, reason=reason), corrected_row.line)


def prepare_release(
    source: Source, root: Path, chosen_rows: Sequence[QuarantinedRow], corrected: Path, folder: Path
) -> PreparedRelease:
    """Write the rows to release below `folder`, as the file `corrected` has them."""
    check_owners((row.file or "", row.owner) for row in chosen_rows)
    if not corrected.is_file():
        raise Mistake("RELEASE_NO_FILE", f"there is no file {corrected}", fix="name the file with the corrected rows")
    correction_file = read_correction_file(corrected, source, chosen_rows)
    if correction_file is None:
        return _prepare_whole_file(source, chosen_rows, corrected)
    return _prepare_corrected_rows(source, root, chosen_rows, correction_file, corrected=corrected, folder=folder)


def check_row_count(expected: int, count: int, name: str) -> None:
    """Raise if the files to read, such as that called `name`, had more or fewer rows than expected."""
    if count != expected:
        what = f"{expected:,} rows were to be released, but {count:,} were read; nothing was released"
        raise Mistake("RELEASE_ROW", what, at=name, fix="check quotes and line breaks in the rows")


def check_owners(owners: Iterable[tuple[str, str | None]]) -> None:
    """Raise if the quarantined rows of one name belong to several files; takes the name and owner of each row."""
    owner_by_name: dict[str, str | None] = {}
    for name, owner in owners:
        if owner_by_name.setdefault(name, owner) != owner:
            what = f"several files were called {name} when their rows were set aside, and have other names by now"
            raise Mistake("RELEASE_FILES", what, fix="correct the rows in the files themselves, and run again")


def _prepare_whole_file(source: Source, chosen_rows: Sequence[QuarantinedRow], corrected: Path) -> PreparedRelease:
    """Let all rows of a file that does not name quarantined rows take the place of the rows of the only source file."""
    names = {row.file for row in chosen_rows}
    if len(names) > 1:
        what = f"{corrected} does not say which of {len(names):,} files each of its rows belongs to"
        fix = (
            f"correct the output of runnel quarantine {source.table} --raw, whose first column says it, "
            "or release the rows of one file: --file NAME"
        )
        raise Mistake("RELEASE_FILES", what, at=f"{corrected}:1", fix=fix)
    file = make_local_file(str(corrected), corrected)
    release_source = make_release_source(source, detect_format([file]))
    return PreparedRelease(
        release_source, (file,), tuple(chosen_rows), origins={file.name: _ReleaseFile(chosen_rows[0])}
    )


def _prepare_corrected_rows(
    source: Source,
    root: Path,
    chosen_rows: Sequence[QuarantinedRow],
    correction_file: CorrectionFile,
    *,
    corrected: Path,
    folder: Path,
) -> PreparedRelease:
    if not correction_file.rows and not correction_file.uncorrected:
        what = f"no row of {corrected} is in the quarantine of {source.table}"
        fix = f"runnel quarantine {source.table} --raw writes the rows that are there now"
        raise Mistake("RELEASE_NOTHING", what, at=str(corrected), fix=fix)
    files, origins = list[LocalFile](), dict[str, _ReleaseFile]()
    groups = _group_by_file(correction_file.rows)
    layout = correction_file.layout
    for number, (file_name, all_rows) in enumerate(groups):
        name = str(corrected) if len(groups) == 1 else f"{corrected} (rows of {file_name})"
        rows, row_layout = all_rows, layout
        if layout is not None and is_csv(source):
            original = read_layout(source, root, file_name)
            _check_columns(layout, original, corrected)
            row_layout, rows = restore_layout(all_rows, layout, original, build_request(source, ()).csv)
        if rows:
            path = folder / f"{number}{choose_extension(row_layout)}"
            origins[name] = _write_rows(path, row_layout, rows)
            files.append(make_local_file(name, path))
    return _describe_release(source, chosen_rows, correction_file, files, origins)


def _describe_release(
    source: Source,
    chosen_rows: Sequence[QuarantinedRow],
    correction_file: CorrectionFile,
    files: Sequence[LocalFile],
    origins: Mapping[str, _ReleaseFile],
) -> PreparedRelease:
    corrected_rows = (*correction_file.rows, *correction_file.uncorrected)
    read_rows = [row for release_file in origins.values() for row in release_file.rows]
    read_lines = {row.line for row in read_rows}
    layout, options = correction_file.layout, dict[str, str | None](comment=None)
    if layout is not None and not is_csv(source):
        options["delimiter"] = layout.delimiter
    return PreparedRelease(
        make_release_source(source, CSV if layout else JSONL, options),
        tuple(files),
        tuple(row.row for row in read_rows),
        tuple(StillBadRow(row.row, row.line) for row in corrected_rows if row.line not in read_lines),
        missing=len(chosen_rows) - len(corrected_rows),
        unknown=len(correction_file.unknown_lines),
        origins=origins,
    )


def _check_columns(layout: CsvLayout, original: CsvLayout, corrected: Path) -> None:
    present_names = {name.lower() for name in layout.names}
    missing = [name for name in original.names if name.lower() not in present_names]
    if missing:
        what = f"{corrected} lacks {join_names(missing)}" + did_you_mean(missing[0], layout.names)
        fix = "keep the header that --raw wrote, and correct values only"
        raise Mistake("SOURCE_COLUMN_MISSING", what, at=f"{corrected}:1", fix=fix)


def _group_by_file(rows: Iterable[CorrectedRow]) -> list[tuple[str, list[CorrectedRow]]]:
    groups: dict[str, list[CorrectedRow]] = {}
    for row in rows:
        groups.setdefault(row.row.file or "", []).append(row)
    return list(groups.items())


def _write_rows(path: Path, layout: CsvLayout | None, rows: Sequence[CorrectedRow]) -> _ReleaseFile:
    """Write rows as CSV with a header, or as JSON lines, and record the first line of each row."""
    line_ending = "\r\n" if layout is not None and any("\r\n" in row.text for row in rows) else "\n"
    with ReleaseTextWriter(path, layout, line_ending) as writer:
        first_lines = tuple(writer.write(row.text) for row in rows)
    return _ReleaseFile(rows[0].row, first_lines, tuple(rows))


def make_unchanged_source(source: Source) -> Source:
    """Return the source for files with quarantined rows as they are."""
    return make_release_source(source, CSV if is_csv(source) else JSONL, {"comment": None})


def make_release_source(
    source: Source, file_format: str, changed_options: Mapping[str, str | None] | None = None
) -> Source:
    """Return the source for the files to release; an option that is changed to None is left out."""
    options, changes = list[tuple[str, str]](), dict(changed_options or {})
    if file_format == CSV:
        original_options = source.origin.options if isinstance(source.origin, Files) else ()
        options = [
            (name, value)
            for name, value in original_options
            if name not in _OPTIONS_OF_ORIGINALS and name not in changes
        ]
        options += [(name, value) for name, value in changes.items() if value is not None]
    release_files = Files(str(source.table), file_format, source.origin.schema, options=tuple(options))  # type: ignore[arg-type]
    return replace(source, origin=release_files, on_bad="quarantine")
