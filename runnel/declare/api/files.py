"""`rn.files`."""

from collections.abc import Sequence
from typing import Any, Literal, cast

from runnel.declare.model.endpoints import Files, Wrong
from runnel.declare.options.file_formats import FORMATS, format_of
from runnel.declare.options.file_options import written
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import current
from runnel.names import shown


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
    decimal: Literal[".", ","] | None = None,
    date_format: str | None = None,
    timestamp_format: str | None = None,
    encoding: str | None = None,
    records: str | None = None,
    row_tag: str | None = None,
    partition: str | Sequence[str] | None = None,
    compress: Literal["gz", "zst"] | None = None,
    **unknown: object,
) -> Files | Wrong:
    """Name files as an origin, by a glob from the project's folder on, or in an object store: `s3://bucket/*.csv`.

    `format` is taken from the ending; `.gz`, `.zst`, `.bz2`, `.xz` and `.zip` after it are unpacked. `schema` is needed
    for CSV, JSON, JSON lines and XML. A changed file always replaces its rows; a vanished one's stay
    (`removed="keep"`) or go (`"delete"`). `records="data.items"` says where the rows stand in a JSON document, and
    `row_tag="order"` which element of XML is one. The rest says how CSV is written.

    As a sink, a path is one file, and one that ends with / a folder, laid out by the columns of `partition`; `compress`
    says how its files are packed.
    """
    registry = current()
    place = registry.here()
    values: dict[str, Any] = {"format": format, "schema": schema, "removed": removed}
    values |= {"delimiter": delimiter, "header": header, "null": null, "quote": quote, "escape": escape}
    values |= {"comment": comment, "skip": skip, "missing": missing, "trim": trim, "decimal": decimal}
    values |= {"date_format": date_format, "timestamp_format": timestamp_format, "encoding": encoding}
    values |= {"records": records, "row_tag": row_tag, "partition": partition, "compress": compress}
    given = Given(f"rn.files({shown(glob)})", values, lambda _, mistake: registry.note(mistake, place))
    given.unknown(list(unknown), list(values))
    kind = given.choice("format", FORMATS) or _format_of(given, glob)
    found = given.schema()
    kept = given.choice("removed", ("keep", "delete"), "keep")
    options = written(given, values, kind or "csv")
    layout, packed = given.texts("partition", "a column"), given.choice("compress", ("gz", "zst"))
    if kind is None or (schema is not None and found is None):
        return Wrong()
    return Files(glob, cast(Any, kind), found, cast(Any, kept), options, layout, cast(Any, packed))


def _format_of(given: Given, glob: Any) -> str | None:
    """Return the format that a glob's ending names. A format that was given wrongly has been told already."""
    if not isinstance(glob, str) or not glob.strip():
        given.wrong("glob", f"{shown(glob)} is not a glob", 'write rn.files("data/orders/*.csv")')
        return None
    found = format_of(glob)
    if found is None:
        names = ", ".join(f'"{name}"' for name in FORMATS[:-1])
        given.wrong("format", "the format does not show in the ending", f'say it: format={names} or "{FORMATS[-1]}"')
    return found
