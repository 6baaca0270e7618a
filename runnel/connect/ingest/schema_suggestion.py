"""Suggest a schema for a source that has none, from the first rows of one of its files. Never raises."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.files.file_patterns import CSV
from runnel.connect.ingest.detect.listing import find_first_file, is_object_url
from runnel.declare.model.endpoints import Files
from runnel.errors import RunnelError
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.connect.files.load_request import LoadRequest
    from runnel.connect.load.suggest.total_line import TotalLine

_ANY_TABLE = TableName("ods", "files")


def suggest_schema(root: Path, files: Files) -> str | None:
    """Return the fix: the missing options of `rn.files`, or what is wrong with the file; None if it can't tell."""
    try:
        if is_object_url(files.glob):
            return None
        listed_file = find_first_file(root, files.glob, follow_links=files.follow_links)
        if listed_file is None:
            return f"add {_describe_missing_files(files)}"
        if not listed_file.size:
            return None
        return _describe_file(root, listed_file.path, files)
    except RunnelError as error:
        return _describe_bad_file(error)
    except Exception:  # whatever else is wrong: the mistake in the declaration is what the user has to hear of
        return None


def _describe_bad_file(error: RunnelError) -> str:
    """Return what is wrong with a file that can't be read, as a load says it, and what to do."""
    from runnel.connect.ingest.source_errors import translate_fix

    fix = translate_fix(error.fix) or "correct the file"
    return f"{fix} ({error.what.splitlines()[0]}); then `runnel schema FILE` prints the schema of a file"


def _describe_missing_files(files: Files) -> str:
    """Return the options for files that arrive later; which columns they will have is up to the user."""
    example = "order_id long, day date, amount decimal(12,2)"
    return f'may_be_empty=True, schema="{example}" with your columns (no file matches {files.glob} yet; is it right?)'


def _describe_file(root: Path, path: str, files: Files) -> str | None:
    from runnel import temp_dirs
    from runnel.connect.files.file_patterns import make_local_file
    from runnel.connect.ingest.read_request import build_files_request
    from runnel.connect.load.schema_inference import infer_schema
    from runnel.connect.load.suggest.file_sample import take_sample
    from runnel.connect.load.suggest.option_suggestion import apply_options, suggest_options
    from runnel.connect.load.suggest.suggested_options import escape_text

    with temp_dirs.create_scoped("schema") as folder:
        file = make_local_file(path, root / path)
        sample = take_sample(file, files.format, Path(folder))
        if sample is None:
            return None
        request = build_files_request(_ANY_TABLE, replace(files, schema=None), [sample.file])
        suggested = suggest_options(request, file)
        request = apply_options(request, suggested.options)
        schema = infer_schema(request).text
        total = _find_total_line(request) if files.format == CSV and sample.is_complete else None
    keywords = f"{suggested.as_keywords}, " if suggested.options else ""
    row_options = [name for name, _ in suggested.options if name in ("records", "row_tag")]
    notes = [f"without {row_options[0]}, the top level has the rows"] if row_options else []
    if total is not None and total.can_be_declared:
        schema = total.schema
        notes.append('its last line seems to be a total: add on_bad="drop" to rn.source')
    elif total is not None:
        notes.append(f"its last line seems to be a total, `{total.text}`: remove it")
    notes += suggested.list_caveats(is_source=True, with_total=False)
    note = "".join(f"; {text}" for text in notes)
    return f'add {keywords}schema="{escape_text(schema)}" (from the first rows of {path}{note})'


def _find_total_line(request: "LoadRequest") -> "TotalLine | None":
    from runnel.connect.files.scratch_files import ScratchFiles
    from runnel.connect.load.column_matching import match_columns
    from runnel.connect.load.file_loader import open_request
    from runnel.connect.load.suggest.total_line import find_total_line
    from runnel.connect.load.type_inference import infer_types
    from runnel.lake.scan.duckdb_connection import connect_duckdb

    with ScratchFiles() as scratch, connect_duckdb() as con:
        reader = open_request(con, request, scratch)
        choices = infer_types(con, reader, match_columns(reader.columns, (), None, "add", "")).choices
        return find_total_line(con, request, scratch, choices, must_be_named=False)
