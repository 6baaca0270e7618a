"""Warn of files whose rows can't be loaded, or could be read in a better way, with the options that do it."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.types import StringType

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.open_files import UnreadableFile
from runnel.connect.ingest.read_request import build_request
from runnel.connect.load.column_matching import ColumnChoice
from runnel.connect.load.suggest.option_suggestion import describe_suggestion, suggest_options
from runnel.connect.load.suggest.suggested_options import SuggestedOptions
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.errors import plural

if TYPE_CHECKING:
    from runnel.connect.ingest.batch_reader import IngestBatch

Suggest = Callable[[LoadRequest, LocalFile, Collection[str]], SuggestedOptions]
"""Suggests options for a file of a request, like `suggest_options`: it opens the file, where it can be read."""


def warn_of_no_rows(request: LoadRequest, batch: "IngestBatch", suggest: Suggest = suggest_options) -> tuple[str, ...]:
    """Warn if most rows of a batch, or all rows of a file, are bad, with the options that would make them good."""
    dropped, written_rows = batch.dropped, batch.written.rows
    files = [file for file in request.files if file.name in batch.incomplete]
    rowless_files = [file for file in files if file.name not in batch.written.locations_by_path]
    if not dropped or not files or (not rowless_files and dropped <= written_rows):
        return ()
    suggested = suggest(request, (rowless_files or files)[0], ())
    fix = f": {describe_suggestion(replace(suggested, bad_rows=0), is_source=True)}" if suggested.options else ""
    if not written_rows:
        rows = "the only row" if dropped == 1 else f"all {plural(dropped, 'row')}"
        return (f"{rows} of {request.files_label} can't be loaded{fix}",)
    if dropped > written_rows:
        rows = f"{dropped:,} of {dropped + written_rows:,} rows of {request.files_label}"
        return (f"{rows} can't be loaded{fix}",) if fix else ()
    label = replace(request, files=tuple(rowless_files)).files_label
    return (f"no row of {label} can be loaded{fix}",)


def warn_of_first_types(
    source: Source, request: LoadRequest, choices: Sequence[ColumnChoice], suggest: Suggest = suggest_options
) -> tuple[str, ...]:
    """Warn if types are inferred from files that could be read in a better way, or of which only users can tell."""
    if not isinstance(source.origin, Files) or not source.origin.infers_schema:
        return ()
    text_columns = [choice.name for choice in choices if isinstance(choice.conversions[0].kind, StringType)]
    suggested = suggest(request, request.files[0], text_columns)
    return () if suggested.is_empty else (suggested.describe_for_source(request.files[0].name),)


def warn_of_unreadable(
    source: Source, unreadable_files: Sequence[UnreadableFile], suggest: Suggest = suggest_options
) -> tuple[str, ...]:
    """Return the options with which the first unreadable file could be read; other warnings say why it was not."""
    for file in [unreadable_file.file for unreadable_file in unreadable_files[:1]]:
        suggested = suggest(build_request(source, [file]), file, ())
        if suggested.options:
            fix = describe_suggestion(replace(suggested, bad_rows=0), is_source=True)
            return (f"{file.name} could be read: {fix}",)
    return ()
