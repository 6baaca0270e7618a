"""Tell which rows DuckDB's CSV reader rejected in its last query, and on which line of the file each of them starts.

DuckDB counts records, not lines, so the lines are counted here, up to the byte that a rejected row starts with.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from runnel.connect.files.compression import detect_compression, open_decompressed

if TYPE_CHECKING:
    import duckdb

_CHUNK = 1 << 20
_REJECTS = "FROM reject_errors JOIN reject_scans USING (scan_id, file_id)"
_REASONS = {
    "UNQUOTED VALUE": "a quote is not closed, or text follows a closing quote",
    "LINE SIZE OVER MAXIMUM": "the line is longer than 2 MB",
}


@dataclass(frozen=True)
class RejectedRecord:
    """A rejected row of the file at `path`; `position` is that of its first byte, counted from 0."""

    path: str
    position: int
    reason: str
    text: str


@dataclass(frozen=True)
class LineShifts:
    """How far the lines of a copy are from those of the original: from each of `lines` on, by its `shift`."""

    lines: tuple[int, ...] = ()
    shifts: tuple[int, ...] = ()

    def find_original(self, line: int) -> int:
        """Return the line of the original.

        >>> LineShifts((1, 5), (2, 3)).find_original(4), LineShifts((1, 5), (2, 3)).find_original(5)
        (6, 8)
        """
        index = bisect_right(self.lines, line)
        return line + (self.shifts[index - 1] if index else 0)


def has_rejects(con: "duckdb.DuckDBPyConnection") -> bool:
    """Tell whether the last query over CSV stored the rows that it rejected."""
    return bool(con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'reject_errors'").fetchone())


def count_rejects(con: "duckdb.DuckDBPyConnection") -> int:
    """Return how many rows the last query rejected."""
    [(count,)] = con.execute(
        f"SELECT count(*) FROM (SELECT DISTINCT file_path, line, line_byte_position {_REJECTS})"
    ).fetchall()
    return int(count)


def has_open_rows(con: "duckdb.DuckDBPyConnection", ending_paths: Collection[str]) -> bool:
    """Tell whether the last query rejected a row of several lines, or one at the end of one of these files."""
    text = "trim(csv_line, chr(13) || chr(10))"
    rows = con.execute(
        f"SELECT file_path, line_byte_position - 1 + strlen(csv_line), contains({text}, chr(10)) OR "
        f"contains({text}, chr(13)) {_REJECTS} WHERE error_type = 'UNQUOTED VALUE' OR contains({text}, chr(10)) OR "
        f"contains({text}, chr(13))"
    ).fetchall()
    sizes = {path: Path(path).stat().st_size for path in ending_paths}
    # The text of a row may lack the line end of its last line.
    return any(has_line_end or (path in sizes and end + 2 >= sizes[path]) for path, end, has_line_end in rows)


def read_rejects(
    con: "duckdb.DuckDBPyConnection", most: int | None, bytes_before: Mapping[str, int] | None = None
) -> list[RejectedRecord]:
    """Return rows that the last query rejected, at most so many; None is all.

    `bytes_before` are added to the positions of bytes that reasons name, by path.
    """
    rows = con.execute(
        f"SELECT file_path, line_byte_position, arg_max(error_type, byte_position), "
        f"arg_min(error_message, column_idx), arg_max(error_message, column_idx), min(csv_line) {_REJECTS} "
        f"GROUP BY file_path, line, line_byte_position ORDER BY file_path, line_byte_position "
        f"LIMIT {'ALL' if most is None else most}"
    ).fetchall()
    records = []
    for path, position, kind, first_message, last_message, text in rows:
        # DuckDB reports every missing or extra column by itself.
        message = first_message if kind == "MISSING COLUMNS" else last_message
        reason = _describe_reject(
            path, position - 1, kind, message, text, bytes_before=(bytes_before or {}).get(path, 0)
        )
        records.append(RejectedRecord(path, position - 1, reason, text.strip("\r\n")))
    return records


def read_reject_positions(con: "duckdb.DuckDBPyConnection") -> list[int]:
    """Return the first bytes of the rows that the last query, over one file, rejected."""
    return [row[0] - 1 for row in con.execute(f"SELECT DISTINCT line_byte_position {_REJECTS}").fetchall()]


def forget_rejects(con: "duckdb.DuckDBPyConnection") -> None:
    """Remove what the last query stored, so that the next one starts without."""
    con.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")


def find_lines(path: str, positions: Collection[int]) -> dict[int, int]:
    r"""Return the lines, counted from 1, on which rows start at or after these bytes of a file.

    Lines end with \n, \r or \r\n. DuckDB lets a row start with the empty lines before it.
    """
    waiting, lines = deque(sorted(set(positions))), dict[int, int]()
    line, start = 1, 0
    with open_decompressed(path) as stream:
        for chunk in _read_chunks(stream):
            counted_to = 0
            while waiting and waiting[0] < start + len(chunk):
                offset = max(waiting[0] - start, 0)
                while offset < len(chunk) and chunk[offset] in b"\r\n":
                    offset += 1
                if offset == len(chunk):
                    break
                line, counted_to = line + _count_line_ends(chunk[counted_to:offset]), offset
                lines[waiting.popleft()] = line
            if not waiting:
                break
            line, start = line + _count_line_ends(chunk[counted_to:]), start + len(chunk)
    return {**lines, **dict.fromkeys(waiting, line)}


def _read_chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks that don't separate a carriage return from its line feed."""
    while chunk := stream.read(_CHUNK):
        yield chunk + stream.read(1) if chunk.endswith(b"\r") else chunk


def _count_line_ends(text: bytes) -> int:
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _describe_reject(path: str, position: int, kind: str, message: str, text: str, *, bytes_before: int) -> str:
    if kind in ("MISSING COLUMNS", "TOO MANY COLUMNS"):
        return message.replace("Expected Number of Columns: ", "expected ").replace(" Found: ", " columns, found ")
    if kind == "INVALID ENCODING":
        return _describe_bad_byte(path, position, 4 * len(text) + _CHUNK // 256, bytes_before)
    return _REASONS.get(kind, message.splitlines()[0] if message else kind.lower())


def _describe_bad_byte(path: str, position: int, size: int, bytes_before: int) -> str:
    """Describe which byte is not UTF-8, in the row that starts at `position`."""
    if detect_compression(path) is None:
        with Path(path).open("rb") as stream:
            stream.seek(position)
            row = stream.read(size)
        try:
            row.decode()
        except UnicodeDecodeError as error:
            file_position = position + error.start + bytes_before
            return f"byte 0x{row[error.start]:02x} at position {file_position} is not UTF-8"
    return "it has bytes that are not UTF-8"
