"""`rn.files`."""

from collections.abc import Sequence
from typing import Any, Literal, cast

from runnel.declare.model.endpoints import Files, InvalidEndpoint
from runnel.declare.options.file_formats import FORMATS, infer_format
from runnel.declare.options.file_options import read_file_options
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import current_registry
from runnel.names import quote_value

INFER = "infer"
"""The schema of files whose columns the first run settles."""
_SOURCE_OPTIONS = ("on_bad", "on_new_column", "poll", "key", "tags", "owner", "description")


def files(
    glob: str,
    *,
    format: Literal["csv", "jsonl", "json", "parquet", "avro", "orc", "xml", "text", "binary"] | None = None,
    schema: str | None = None,
    removed: Literal["keep", "delete"] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    null: str | Sequence[str] | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip: int | None = None,
    missing: Literal["bad", "null"] | None = None,
    trim: bool | None = None,
    multiline: bool | None = None,
    decimal: Literal[".", ","] | None = None,
    date_format: str | None = None,
    timestamp_format: str | None = None,
    encoding: str | None = None,
    records: str | None = None,
    row_tag: str | None = None,
    thousands: Literal[".", ",", "'", " ", "_"] | None = None,
    timezone: str | None = None,
    may_be_empty: bool | None = None,
    follow_links: bool | None = None,
    missing_columns: Literal["stop", "null"] | None = None,
    partition: str | Sequence[str] | None = None,
    compress: Literal["gz", "zst"] | None = None,
    **unknown: object,
) -> Files | InvalidEndpoint:
    """Declare files as an origin, by a glob relative to the project's folder or in an object store: `s3://b/*.csv`.

    `format` defaults to the file's ending; files with `.gz`, `.zst`, `.bz2`, `.xz` or `.zip` after it are decompressed.
    CSV, JSON, JSON lines and XML need a `schema`; with `"infer"` the first run settles it from the values. A changed
    file always replaces its rows; the rows of a deleted file stay (`removed="keep"`) or are deleted (`"delete"`).
    `records="data.items"` is the path of the rows in a JSON document, `row_tag="order"` the XML element of a row. With
    `may_be_empty=True` a run without any file creates a table without rows, and with `missing_columns="null"` files may
    lack columns of the schema. With `multiline=False` no value of CSV contains a line end, so that executors can read
    splits of a large file. With `follow_links=True` links may lead out of the folder before the first wildcard.
    The other options describe how the files are written.

    As a sink, a path is one file; a path that ends with / is a folder, partitioned by the columns of `partition`.
    `compress` sets the compression of its files.
    """
    registry = current_registry()
    place = registry.caller_location()
    values: dict[str, Any] = {"format": format, "schema": schema, "removed": removed}
    values |= {"delimiter": delimiter, "header": header, "null": null, "quote": quote, "escape": escape}
    values |= {"comment": comment, "skip": skip, "missing": missing, "trim": trim, "decimal": decimal}
    values |= {"multiline": multiline}
    values |= {"date_format": date_format, "timestamp_format": timestamp_format, "encoding": encoding}
    values |= {"records": records, "row_tag": row_tag, "partition": partition, "compress": compress}
    values |= {"thousands": thousands, "timezone": timezone, "may_be_empty": may_be_empty}
    values |= {"follow_links": follow_links}
    values |= {"missing_columns": missing_columns}
    reader = OptionReader(
        f"rn.files({quote_value(glob)})", values, lambda _, mistake: registry.report_mistake(mistake, place)
    )
    reader.reject_unknown(list(unknown), list(values), dict.fromkeys(_SOURCE_OPTIONS, "rn.source"))
    kind = reader.choice("format", FORMATS) or _infer_format(reader, glob)
    infers_schema = schema == INFER
    columns = reader.schema() if not infers_schema else None
    removed_action = reader.choice("removed", ("keep", "delete"), "keep")
    options = read_file_options(reader, values, kind or "csv")
    partition_columns, compression = reader.texts("partition", "a column"), reader.choice("compress", ("gz", "zst"))
    creates_empty = reader.flag("may_be_empty")
    if creates_empty and (schema is None or infers_schema):
        what = "`may_be_empty` needs a schema: without files, nothing else says which columns the table has"
        reader.reject("may_be_empty", what, 'add schema="order_id long, day date"')
    if kind is None or (schema is not None and columns is None and not infers_schema):
        return InvalidEndpoint()
    return Files(
        glob,
        cast(Any, kind),
        columns,
        cast(Any, removed_action),
        options,
        partition_columns,
        cast(Any, compression),
        infers_schema,
        creates_empty,
        reader.flag("follow_links"),
    )


def _infer_format(reader: OptionReader, glob: Any) -> str | None:
    """Infer the format from a glob's ending, unless the user set a wrong format: that was already reported."""
    if not isinstance(glob, str) or not glob.strip():
        reader.reject("glob", f"{quote_value(glob)} is not a glob", 'write rn.files("data/orders/*.csv")')
        return None
    format_name = infer_format(glob)
    if format_name is None:
        names = ", ".join(f'"{name}"' for name in FORMATS[:-1])
        reader.reject("format", "the file extension does not show the format", f'add format={names} or "{FORMATS[-1]}"')
    return format_name
