"""Suggest a schema for a source that has none, from the first rows of one of its files. Never raises."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.files.file_patterns import CSV
from runnel.connect.ingest.detect.listing import find_first_file, is_object_url
from runnel.declare.model.endpoints import Files
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.connect.files.load_request import LoadRequest
    from runnel.connect.load.schema_inference import InferredSchema

_ANY_TABLE = TableName("ods", "files")
_LEAST_LINES = 4  # a header, two rows, and the total


def suggest_schema(root: Path, files: Files) -> str | None:
    """Return the missing options of `rn.files`, such as `delimiter=";", schema="id long"`; None if it can't tell."""
    try:
        if is_object_url(files.glob):
            return None
        listed_file = find_first_file(root, files.glob)
        if listed_file is None:
            return _describe_missing_files(files)
        if not listed_file.size:
            return None
        return _describe_file(root, listed_file.path, files)
    except Exception:  # whatever is wrong with the file: the mistake in the declaration is what the user has to hear of
        return None


def _describe_missing_files(files: Files) -> str:
    """Return the options for files that arrive later; which columns they will have is up to the user."""
    example = "order_id long, day date, amount decimal(12,2)"
    return f'may_be_empty=True, schema="{example}" with your columns (no file matches {files.glob} yet; is it right?)'


def _infer_above_last_line(request: "LoadRequest") -> "InferredSchema | None":
    """Return the schema of a CSV file without its last line; None if there would be too few rows to tell."""
    from runnel.connect.load.schema_inference import infer_schema

    [file] = request.files
    lines = Path(file.path).read_bytes().rstrip(b"\r\n").split(b"\n")
    if len(lines) - request.csv.skip < _LEAST_LINES:
        return None
    path = Path(file.path).with_stem("above-total")
    path.write_bytes(b"\n".join(lines[:-1]) + b"\n")
    return infer_schema(replace(request, files=(replace(file, path=str(path), bytes=path.stat().st_size),)))


def _describe_file(root: Path, path: str, files: Files) -> str | None:
    from runnel import temp_dirs
    from runnel.connect.files.file_patterns import make_local_file
    from runnel.connect.ingest.read_request import build_files_request
    from runnel.connect.load.schema_inference import infer_schema
    from runnel.connect.load.suggest.option_suggestion import apply_options, escape_text, sample_file, suggest_options

    with temp_dirs.create_scoped("schema") as folder:
        file = make_local_file(path, root / path)
        sample = sample_file(file, files.format, Path(folder))
        if sample is None:
            return None
        request = build_files_request(_ANY_TABLE, replace(files, schema=None), [sample])
        suggested = suggest_options(request, sample)
        request = apply_options(request, suggested.options)
        schema = infer_schema(request)
        is_whole_file = sample.bytes == file.bytes
        schema_above_total = _infer_above_last_line(request) if files.format == CSV and is_whole_file else None
    keywords = f"{suggested.as_keywords}, " if suggested.options else ""
    row_options = [name for name, _ in suggested.options if name in ("records", "row_tag")]
    note = f"; without {row_options[0]}, the top level has the rows" if row_options else ""
    if schema_above_total is not None and schema_above_total.count_strings() < schema.count_strings():
        schema, note = schema_above_total, f'{note}; its last line seems to be a total: add on_bad="drop" to rn.source'
    note += "; if the month comes first, exchange day and month" if suggested.is_ambiguous else ""
    return f'{keywords}schema="{escape_text(schema.text)}" (from the first rows of {sample.name}{note})'
