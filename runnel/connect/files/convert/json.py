"""A JSON document as JSON lines: an array of records, or one record, whole or somewhere inside the document."""

import json
from typing import TYPE_CHECKING

from runnel.connect.files.file_patterns import File
from runnel.connect.files.scratch_files import Scratch, opened
from runnel.errors import Mistake, nearest
from runnel.lake.scan.duckdb_types import exact_path, literal
from runnel.names import shown

if TYPE_CHECKING:
    import duckdb

_HEAD = 1 << 16
_BLANK = b"\xef\xbb\xbf \t\r\n"
_EXPLAINED = 256 << 20  # a larger document is not parsed again just to say where it is wrong


def lines(con: "duckdb.DuckDBPyConnection", file: File, scratch: Scratch, records: str | None) -> File | None:
    """Return a file of JSON lines in the place of a document; None where it has no records.

    A file that has one object per line stays as it is.
    """
    if records is None and is_lines(file):
        return file
    size = max(_HEAD, _size(file) + 1)
    path = exact_path(scratch.readable(file))
    target = scratch.fresh("records.jsonl")
    rows = f"read_json_objects([{path}], format = 'unstructured', maximum_object_size = {size})"
    pointer = literal("".join(f"/{_escaped(part)}" for part in records.split("."))) if records else None
    found = f"json_extract(json, {pointer})" if pointer else "json"
    import duckdb

    try:
        kinds = con.execute(f"SELECT json_type({found}), count(*) FROM {rows} GROUP BY ALL").fetchall()
        _check(file, records, dict(kinds), con, rows)
        many = "SELECT unnest(CASE json_type(v) WHEN 'ARRAY' THEN CAST(v AS JSON[]) ELSE [v] END) AS v"
        if not pointer and set(dict(kinds)) == {"ARRAY"} and sum(dict(kinds).values()) == 1:
            # As it stands in the file, number for number.
            objects = f"read_json_objects([{path}], format = 'array', maximum_object_size = {size})"
            select = f"SELECT CAST(json AS VARCHAR) FROM {objects}"
        else:
            select = f"SELECT CAST(v AS VARCHAR) FROM ({many} FROM (SELECT {found} AS v FROM {rows}))"
        count = _written(con, select, target)
    except duckdb.InvalidInputException as error:
        raise _malformed(file, error) from error
    return scratch.instead(file, target) if count else None


def is_lines(file: File) -> bool:
    """Tell whether a file has an object on its first line, and nothing else there."""
    with opened(file) as stream:
        head = stream.read(_HEAD).lstrip(_BLANK)
    first, newline, _ = head.partition(b"\n")
    try:
        return bool(newline) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _written(con: "duckdb.DuckDBPyConnection", select: str, target: object) -> int:
    count = 0
    with open(str(target), "w", encoding="utf-8") as out:  # noqa: PTH123
        found = con.execute(select)
        while rows := found.fetchmany(10_000):
            # A line break stands only between what JSON consists of, never within a text.
            out.writelines((text or "null").replace("\n", " ").replace("\r", " ") + "\n" for (text,) in rows)
            count += len(rows)
    return count


def _size(file: File) -> int:
    if not file.packing:
        return file.bytes
    with opened(file) as stream:
        return sum(len(chunk) for chunk in iter(lambda: stream.read(1 << 20), b""))


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _check(
    file: File, records: str | None, kinds: dict[str | None, int], con: "duckdb.DuckDBPyConnection", rows: str
) -> None:
    """Refuse a document that has no records where they should be."""
    wrong = [kind for kind in kinds if kind not in ("ARRAY", "OBJECT")]
    if not wrong:
        return
    if records is None:
        what = f"{file.name} is neither an array of records nor one record: it is {wrong[0]}"
        raise Mistake("LOAD_JSON", what, at=file.name, fix="write an array of objects")
    keys = con.execute(f"SELECT DISTINCT unnest(json_keys(json)) FROM {rows} WHERE json_type(json) = 'OBJECT'")
    names = sorted(key for (key,) in keys.fetchall())
    close = nearest(records.split(".")[0], names) or (names[0] if names else None)
    has = f"; it has {shown(close)}" if close else ""
    what = f"{file.name} has no records at {shown(records)}{has}"
    raise Mistake("LOAD_JSON", what, at=file.name, fix='say where they stand, such as records="data.items"')


def _malformed(file: File, error: Exception) -> Mistake:
    """Return what is wrong with a document, with the line where Python's parser finds it."""
    what, at = str(error).split(", at ", 1)[-1].splitlines()[0], file.name
    if file.bytes <= _EXPLAINED:
        try:
            with opened(file) as stream:
                json.loads(stream.read().decode("utf-8-sig"))
        except UnicodeDecodeError as found:
            what = f"byte 0x{found.object[found.start]:02x} at position {found.start} is not UTF-8"
            return Mistake("LOAD_ENCODING", f"{file.name}: {what}", at=at, fix="name the right --encoding")
        except json.JSONDecodeError as found:
            what = f"{found.msg[0].lower()}{found.msg[1:]} in line {found.lineno}, column {found.colno}"
            at = f"{file.name}:{found.lineno}"
        except RecursionError:
            what = "it is nested too deeply"
    return Mistake("LOAD_JSON", f"{file.name} is not JSON: {what}", at=at, fix="write it again; is it complete?")
