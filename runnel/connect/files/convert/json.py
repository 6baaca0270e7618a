"""Convert a JSON document to JSON lines: an array of records or one record, at the top level or inside it."""

import json
from typing import TYPE_CHECKING

from runnel.connect.files.csv_text.dialect_detection import suggest_encoding
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.scratch_files import ScratchFiles, open_file
from runnel.errors import Mistake, find_nearest
from runnel.lake.scan.duckdb_types import quote_exact_path, quote_literal
from runnel.names import quote_value

if TYPE_CHECKING:
    import duckdb

_HEAD_BYTES = 1 << 16
_BLANK_BYTES = b"\xef\xbb\xbf \t\r\n"
_MAX_EXPLAINED_BYTES = 256 << 20  # a larger document is not parsed again just to locate an error


def to_json_lines(
    con: "duckdb.DuckDBPyConnection", file: LocalFile, scratch: ScratchFiles, records: str | None
) -> LocalFile | None:
    """Convert a document to JSON lines and return the file; None if it has no records.

    A file that already has one object per line is returned unchanged.
    """
    if records is None and is_json_lines(file):
        return file
    size = max(_HEAD_BYTES, _measure_size(file) + 1)
    path = quote_exact_path(scratch.make_readable(file))
    target = scratch.new_path("records.jsonl")
    rows = f"read_json_objects([{path}], format = 'unstructured', maximum_object_size = {size})"
    pointer = (
        quote_literal("".join(f"/{_escape_pointer_key(part)}" for part in records.split("."))) if records else None
    )
    value_sql = f"json_extract(json, {pointer})" if pointer else "json"
    import duckdb

    try:
        kinds = con.execute(f"SELECT json_type({value_sql}), count(*) FROM {rows} GROUP BY ALL").fetchall()
        _check_records(file, records, dict(kinds), con, rows)
        unnested_select = "SELECT unnest(CASE json_type(v) WHEN 'ARRAY' THEN CAST(v AS JSON[]) ELSE [v] END) AS v"
        if not pointer and set(dict(kinds)) == {"ARRAY"} and sum(dict(kinds).values()) == 1:
            # Numbers keep their spelling in the file.
            objects = f"read_json_objects([{path}], format = 'array', maximum_object_size = {size})"
            select = f"SELECT CAST(json AS VARCHAR) FROM {objects}"
        else:
            select = f"SELECT CAST(v AS VARCHAR) FROM ({unnested_select} FROM (SELECT {value_sql} AS v FROM {rows}))"
        count = _write_lines(con, select, target)
    except duckdb.InvalidInputException as error:
        raise _describe_malformed(file, error) from error
    return scratch.replace_file(file, target) if count else None


def is_json_lines(file: LocalFile) -> bool:
    """Tell whether the first line of a file is one JSON object."""
    with open_file(file) as stream:
        head = stream.read(_HEAD_BYTES).lstrip(_BLANK_BYTES)
    first, newline, _ = head.partition(b"\n")
    try:
        return bool(newline) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _write_lines(con: "duckdb.DuckDBPyConnection", select: str, target: object) -> int:
    count = 0
    with open(str(target), "w", encoding="utf-8") as out:  # noqa: PTH123
        result = con.execute(select)
        while rows := result.fetchmany(10_000):
            # Line breaks occur only between JSON tokens, never within a string.
            out.writelines((text or "null").replace("\n", " ").replace("\r", " ") + "\n" for (text,) in rows)
            count += len(rows)
    return count


def _measure_size(file: LocalFile) -> int:
    if not file.compression:
        return file.bytes
    with open_file(file) as stream:
        return sum(len(chunk) for chunk in iter(lambda: stream.read(1 << 20), b""))


def _escape_pointer_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _check_records(
    file: LocalFile, records: str | None, kinds: dict[str | None, int], con: "duckdb.DuckDBPyConnection", rows: str
) -> None:
    """Raise if a document has no records at the given path."""
    wrong = [kind for kind in kinds if kind not in ("ARRAY", "OBJECT")]
    if not wrong:
        return
    if records is None:
        what = f"{file.name} is neither an array of records nor one record: it is {wrong[0]}"
        raise Mistake("LOAD_JSON", what, at=file.name, fix="write an array of objects")
    keys = con.execute(f"SELECT DISTINCT unnest(json_keys(json)) FROM {rows} WHERE json_type(json) = 'OBJECT'")
    names = sorted(key for (key,) in keys.fetchall())
    close = find_nearest(records.split(".")[0], names) or (names[0] if names else None)
    has = f"; it has {quote_value(close)}" if close else ""
    what = f"{file.name} has no records at {quote_value(records)}{has}"
    raise Mistake("LOAD_JSON", what, at=file.name, fix="name their path, such as --records data.items")


def _describe_malformed(file: LocalFile, error: Exception) -> Mistake:
    """Return the error for a malformed document, with the line if Python's parser finds it."""
    what, at = str(error).split(", at ", 1)[-1].splitlines()[0], file.name
    if file.bytes <= _MAX_EXPLAINED_BYTES:
        try:
            with open_file(file) as stream:
                json.loads(stream.read().decode("utf-8-sig"))
        except UnicodeDecodeError as problem:
            what = f"byte 0x{problem.object[problem.start]:02x} at position {problem.start} is not UTF-8"
            return Mistake("LOAD_ENCODING", f"{file.name}: {what}", at=at, fix=suggest_encoding(file))
        except json.JSONDecodeError as problem:
            what = f"{problem.msg[0].lower()}{problem.msg[1:]} in line {problem.lineno}, column {problem.colno}"
            at = f"{file.name}:{problem.lineno}"
        except RecursionError:
            what = "it is nested too deeply"
    return Mistake("LOAD_JSON", f"{file.name} is not JSON: {what}", at=at, fix="write it again; is it complete?")
