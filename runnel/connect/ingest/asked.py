"""What the declaration of a source asks of those who read its files."""

from collections.abc import Sequence

from runnel.connect.csv import check_options
from runnel.connect.globs import File
from runnel.connect.reader import CsvOptions, DocumentOptions
from runnel.connect.request import Request
from runnel.connect.text import Writing
from runnel.declare.flow import Source
from runnel.declare.origin import Files


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
