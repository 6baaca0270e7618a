"""What the declaration of a source asks of those who read its files."""

from collections.abc import Sequence

from runnel.connect.files.csv import check_options
from runnel.connect.files.file_patterns import File
from runnel.connect.files.format_reader import CsvOptions, DocumentOptions
from runnel.connect.files.load_request import Request
from runnel.connect.files.text_values import Writing
from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source


def request_of(source: Source, files: Sequence[File]) -> Request:
    """Return the request for some files of a source."""
    origin = source.origin
    assert isinstance(origin, Files)
    schema = origin.schema or ()
    given = dict(origin.options)
    writing = Writing(given.get("decimal", "."), given.get("date_format"), given.get("timestamp_format"))
    csv = _csv(origin, writing, tuple(column.name for column in schema))
    check_options(csv)
    document = DocumentOptions(given.get("records"), given.get("row_tag"), given.get("encoding", "utf-8"), writing)
    return Request(
        table=source.table, files=tuple(files), format=origin.format, schema=schema, csv=csv, document=document
    )


def _csv(origin: Files, writing: Writing, names: tuple[str, ...]) -> CsvOptions:
    given = dict(origin.options)
    return CsvOptions(
        delimiter=given.get("delimiter"),
        header=given.get("header", "true") != "false",
        null=tuple(text for name, text in origin.options if name == "null") or "",
        quote=given.get("quote", '"'),
        encoding=given.get("encoding", "utf-8"),
        names=names,
        escape=given.get("escape"),
        comment=given.get("comment"),
        skip=int(given.get("skip", "0")),
        pads=given.get("missing") == "null",
        trim=given.get("trim") == "true",
        writing=writing,
    )
