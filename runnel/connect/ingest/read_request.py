"""Build the read request for the files of a source from its declaration."""

from collections.abc import Sequence

from runnel.connect.files.csv import check_options
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.load_request import LoadRequest, build_csv_options, build_document_options
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.names import TableName


def build_request(source: Source, files: Sequence[LocalFile]) -> LoadRequest:
    """Return the request for some files of a source."""
    assert isinstance(source.origin, Files)
    return build_files_request(source.table, source.origin, files)


def allows_missing_columns(origin: Files) -> bool:
    """Tell whether files may lack declared columns."""
    return dict(origin.options).get("missing_columns") == "null"


def build_files_request(table: TableName, origin: Files, files: Sequence[LocalFile]) -> LoadRequest:
    """Return the request for files that `rn.files` describes."""
    schema = origin.schema or ()
    csv_options = build_csv_options(origin.options, tuple(column.name for column in schema))
    check_options(csv_options)
    return LoadRequest(
        table=table,
        files=tuple(files),
        format=origin.format,
        schema=schema,
        allows_missing_columns=allows_missing_columns(origin),
        csv=csv_options,
        document=build_document_options(origin.options),
    )
