"""Where a source's rows come from: `rn.files`, `rn.manual`."""

from pathlib import PurePosixPath
from typing import Any, Literal, cast

from runnel.declare.flow import Files, Manual
from runnel.declare.given import Given
from runnel.declare.registry import current
from runnel.names import shown

FORMATS = ("csv", "jsonl", "parquet")
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_PACKED = (".gz", ".zst", ".bz2", ".xz")
_OF_CSV = ("delimiter", "header", "null", "quote", "encoding")


class NotYet:
    """Stands for an origin that this version does not have; whoever gets it knows that it was told."""


def files(
    glob: str,
    *,
    format: Literal["csv", "jsonl", "parquet"] | None = None,
    schema: str | None = None,
    removed: Literal["keep", "delete"] | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    null: str | None = None,
    quote: str | None = None,
    encoding: str | None = None,
    **unknown: object,
) -> Files | NotYet:
    """Name files as an origin: CSV, JSON lines or Parquet, by a glob from the project's folder on.

    `format` is taken from the ending. `schema` is needed for CSV and JSON lines. A changed file always replaces its
    rows; a vanished one's stay (`removed="keep"`) or go (`"delete"`). The rest is about CSV.
    """
    registry = current()
    place = registry.here()
    values: dict[str, Any] = {
        "glob": glob,
        "format": format,
        "schema": schema,
        "removed": removed,
        "delimiter": delimiter,
    }
    values |= {"header": header, "null": null, "quote": quote, "encoding": encoding}
    given = Given(f"rn.files({shown(glob)})", values, lambda _, mistake: registry.note(mistake, place))
    given.unknown(list(unknown), list(values)[1:])
    kind = given.choice("format", FORMATS) or _format_of(given, glob)
    found = given.schema()
    kept = given.choice("removed", ("keep", "delete"), "keep")
    options = _csv(given, values, kind or "csv")
    if kind is None or (schema is not None and found is None):
        return NotYet()
    return Files(glob, cast(Any, kind), found, cast(Any, kept), options)


def manual(schema: str | None = None) -> Manual | NotYet:
    """Let people fill a table with `runnel load` or `runnel put`."""
    registry = current()
    place = registry.here()
    given = Given("rn.manual()", {"schema": schema}, lambda _, mistake: registry.note(mistake, place))
    found = given.schema()
    return NotYet() if schema is not None and found is None else Manual(found)


def kafka(topic: str | None = None, **options: object) -> NotYet:
    """Read a topic of Kafka. Not in this version yet."""
    return _not_yet("kafka")


def jdbc(url: str | None = None, **options: object) -> NotYet:
    """Read or write a table of a database. Not in this version yet."""
    return _not_yet("jdbc")


def http(url: str | None = None, **options: object) -> NotYet:
    """Read an address. Not in this version yet."""
    return _not_yet("http")


def changes(source: object = None, **options: object) -> NotYet:
    """Apply a feed of changes by key. Not in this version yet."""
    return _not_yet("changes")


def _not_yet(name: str) -> NotYet:
    registry = current()
    fix = "bring the rows in as files with rn.files(...), or by hand with rn.manual() and `runnel load`"
    registry.wrong("DECLARE_NOT_YET", f"this version has no rn.{name} yet", at=registry.here(), fix=fix)
    return NotYet()


def _format_of(given: Given, glob: Any) -> str | None:
    """Return the format that a glob's ending names, that of a packed file being before.

    A format that was given wrongly has been told already.
    """
    if not isinstance(glob, str) or not glob.strip():
        given.wrong("glob", f"{shown(glob)} is not a glob", 'write rn.files("data/orders/*.csv")')
        return None
    path = PurePosixPath(glob.lower())
    ending = PurePosixPath(path.stem).suffix if path.suffix in _PACKED else path.suffix
    if ending not in _ENDINGS:
        given.wrong("format", "the format does not show in the ending", 'say it: format="csv", "jsonl" or "parquet"')
    return _ENDINGS.get(ending)


def _csv(given: Given, values: dict[str, Any], kind: str) -> tuple[tuple[str, str], ...]:
    named = [name for name in _OF_CSV if values[name] is not None]
    if named and kind != "csv":
        given.wrong(named[0], f"`{named[0]}` is about CSV, but this is {kind}", "leave it out")
        return ()
    found = []
    for name in named:
        value = values[name]
        if name == "header":
            found.append((name, str(given.flag("header")).lower()))
        elif not isinstance(value, str) or (len(value) != 1 and name in ("delimiter", "quote") and value):
            given.wrong(name, f"`{name}` can't be {shown(value)}", f'write {name}=";"' if name != "null" else None)
        else:
            found.append((name, value))
    return tuple(found)
