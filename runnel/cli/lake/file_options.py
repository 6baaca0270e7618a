"""Options of commands that read files, as `rn.files` has them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from runnel.declare.options.file_formats import FORMATS, infer_format
from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.connect.files.format_reader import CsvOptions, DocumentOptions
    from runnel.connect.load.suggest.suggested_options import Options

F = TypeVar("F", bound=Callable[..., None])
_KEYWORDS = (
    *("encoding", "format", "delimiter", "skip", "header", "null", "quote", "trim", "decimal", "thousands"),
    *("date_format", "timestamp_format", "timezone", "multiline", "records", "row_tag"),
)
_CHECKED_LIKE_FILES = ("skip", "trim", "decimal", "thousands", "date_format", "timestamp_format", "timezone")
_OPTIONS = (
    click.option("--format", type=click.Choice(FORMATS), default=None, help="File format; by default from the name."),
    click.option("--delimiter", default=None, help="CSV: column separator; by default from the file's extension."),
    click.option("--no-header", is_flag=True, help="CSV: the first line is data."),
    click.option(
        "--null",
        multiple=True,
        default=("",),
        metavar="TEXT",
        help="CSV: text that means null, several times for several; empty by default.",
    ),
    click.option("--quote", default='"', show_default=True, help="CSV: quote character."),
    click.option("--skip", type=int, default=None, metavar="N", help="CSV: lines before the header to ignore."),
    click.option("--trim", is_flag=True, help="CSV: remove blanks around values and column names."),
    click.option(
        "--no-multiline", is_flag=True, help="CSV: no value contains a line end; large files are read in splits."
    ),
    click.option("--decimal", default=None, metavar="CHAR", help='CSV, XML: decimal separator, "." or ",".'),
    click.option("--thousands", default=None, metavar="CHAR", help="CSV, XML: separator of groups of three digits."),
    click.option("--date-format", default=None, metavar="PATTERN", help="Pattern of dates, such as dd/MM/yyyy."),
    click.option(
        "--timestamp-format",
        default=None,
        metavar="PATTERN",
        help="Pattern of times: dd/MM/yyyy h:mm a; or epoch, epoch_ms, epoch_us.",
    ),
    click.option(
        "--timezone", default=None, metavar="ZONE", help="Time zone of times without one, such as Europe/Berlin."
    ),
    click.option("--encoding", default="utf-8", show_default=True, help="Text encoding."),
    click.option("--records", default=None, metavar="PATH", help="JSON: path of the rows, such as data.items."),
    click.option("--row-tag", default=None, metavar="NAME", help="XML: element that is a row."),
)


def file_options(function: F) -> F:
    """Add the options that say how files are written; the command gets them as keywords."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read_file_formats(
    command_name: str, patterns: Sequence[str], values: Mapping[str, Any]
) -> "tuple[CsvOptions, DocumentOptions]":
    """Return how the files are written; raise if an option is wrong, with the checks of `rn.files`."""
    from runnel.connect.files.load_request import build_csv_options, build_document_options
    from runnel.declare.options.file_options import read_file_options
    from runnel.declare.options.option_reader import OptionReader

    # An unset flag is False, which `rn.files` takes for a value.
    checked_values = {name: values[name] if values[name] is not False else None for name in _CHECKED_LIKE_FILES}
    kind = values["format"] or infer_format(patterns[0]) or "csv"
    reader = OptionReader(command_name, checked_values, _raise_mistake)
    pairs = read_file_options(reader, checked_values, kind)
    csv = replace(
        build_csv_options(pairs),
        delimiter="\t" if values["delimiter"] == "\\t" else values["delimiter"],
        header=not values["no_header"],
        null=values["null"],
        quote=values["quote"],
        encoding=values["encoding"],
        multiline=not values["no_multiline"],
    )
    document = build_document_options(pairs)
    encoding = values["encoding"]
    return csv, replace(document, records=values["records"], row_tag=values["row_tag"], encoding=encoding)


def list_used_options(values: Mapping[str, Any], csv: "CsvOptions") -> "Options":
    """Return the options of `rn.files` that a command was given, in the order in which suggestions have them."""
    flags = {"header": values["no_header"], "trim": values["trim"], "multiline": values["no_multiline"]}
    texts = {
        "encoding": values["encoding"] if values["encoding"] != "utf-8" else None,
        "delimiter": csv.delimiter,
        "null": None if csv.nulls == ("",) else csv.nulls if len(csv.nulls) > 1 else csv.nulls[0],
        "quote": values["quote"] if values["quote"] != '"' else None,
    }
    used = {**values, **texts, **{name: "" if is_set else None for name, is_set in flags.items()}}
    return tuple(
        (name, used[name] if isinstance(used[name], tuple) else str(used[name]))
        for name in _KEYWORDS
        if used[name] is not None
    )


def _raise_mistake(_name: str, mistake: Mistake) -> None:
    raise Mistake("LOAD_OPTION", _spell_options(mistake.what), fix=_spell_options(mistake.fix or "") or None)


def _spell_options(text: str) -> str:
    """Return a message about options of `rn.files` with the options as they are typed.

    >>> _spell_options('`date_format` is wrong: write date_format="dd/MM/yyyy"')
    '--date-format is wrong: write --date-format "dd/MM/yyyy"'
    """
    names = "|".join(_CHECKED_LIKE_FILES)
    text = re.sub(rf'\b({names})="', lambda match: f'--{match[1].replace("_", "-")} "', text)
    return re.sub(rf"`({names})`", lambda match: f"--{match[1].replace('_', '-')}", text)
