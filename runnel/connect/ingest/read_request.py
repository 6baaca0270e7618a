"""Build the read request for the files of a source from its declaration."""

from collections.abc import Sequence

from runnel.connect.files.csv import check_options
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.format_reader import CsvOptions, DocumentOptions
from runnel.connect.files.load_request import LoadRequest
from runnel.connect.files.text_values import TextFormat
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source


def build_request(source: Source, files: Sequence[LocalFile]) -> LoadRequest:
    """Return the request for some files of a source."""
    origin = source.origin
    assert isinstance(origin, Files)
    schema = origin.schema or ()
    options = dict(origin.options)
    text_format = TextFormat(options.get("decimal", "."), options.get("date_format"), options.get("timestamp_format"))
    csv_options = _build_csv_options(origin, text_format, tuple(column.name for column in schema))
    check_options(csv_options)
    document = DocumentOptions(
        options.get("records"), options.get("row_tag"), options.get("encoding", "utf-8"), text_format
    )
    return LoadRequest(
        table=source.table, files=tuple(files), format=origin.format, schema=schema, csv=csv_options, document=document
    )


def _build_csv_options(origin: Files, text_format: TextFormat, names: tuple[str, ...]) -> CsvOptions:
    options = dict(origin.options)
    return CsvOptions(
        delimiter=options.get("delimiter"),
        header=options.get("header", "true") != "false",
        null=tuple(text for name, text in origin.options if name == "null") or "",
        quote=options.get("quote", '"'),
        encoding=options.get("encoding", "utf-8"),
        names=names,
        escape=options.get("escape"),
        comment=options.get("comment"),
        skip=int(options.get("skip", "0")),
        pad_missing=options.get("missing") == "null",
        trim=options.get("trim") == "true",
        text_format=text_format,
    )
