"""Reword the errors of reading files for users who declared a source instead of typing `runnel load`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from runnel.declare.model.endpoints import Files
from runnel.declare.model.flow import Source
from runnel.errors import Mistake, RunnelError

_DECLARATION_CODES = ("LOAD_PARTITION", "LOAD_KEY", "LOAD_OPTION", "LOAD_CSV_OPTION")
_OPTION_SPELLINGS = (
    ("--on-bad drop", 'on_bad="drop" or on_bad="quarantine" in rn.source'),
    ("--on-new-column add", 'on_new_column="add"'),
    ("--no-header", "header=False"),
    (" out of rn.files, or --no-multiline off the command", " out of rn.files"),
    ("--missing-columns null", 'missing_columns="null"'),
    ("--schema", "schema="),
    ("--encoding", "encoding"),
    ("--format json", 'format="json"'),
    ("--format", "format="),
    ("--partition", "partition="),
    ("--key order_id", 'key="order_id"'),
)
_DECLARE_TYPES = (
    'the first run settled the types (schema="infer"): '
    "if a type is wrong, declare schema=, and all files are read again"
)
_FILE_OPTION = re.compile(
    r'--(delimiter|encoding|decimal|thousands|date-format|records|row-tag) (?:"([^"]+)"|([\w.-]+))'
)


@contextmanager
def describe_source_errors(source: Source, *, has_table: bool = True) -> Iterator[None]:
    """Turn errors of a load into errors of a source; `has_table` tells whether an earlier run settled the types.

    A problem in a file fails the run; it is not a mistake in the declaration.
    """
    try:
        yield
    except Mistake as error:
        if not error.code.startswith("LOAD_"):
            raise
        code = error.code.replace("LOAD_", "SOURCE_", 1)
        if error.code in _DECLARATION_CODES:
            raise Mistake(code, error.what, at=str(source.place), fix=translate_fix(error.fix)) from error
        fix = translate_fix(error.fix)
        infers_schema = isinstance(source.origin, Files) and source.origin.infers_schema
        if error.code == "LOAD_BAD_ROWS" and infers_schema and has_table:
            fix = f"{fix}; {_DECLARE_TYPES}"
        raise RunnelError(code, error.what, at=error.at, fix=fix) from error


def translate_fix(fix: str | None) -> str | None:
    """Return a fix with the options of commands as `rn.files` and `rn.source` take them."""
    fix = _FILE_OPTION.sub(r'\1="\2\3"', fix) if fix else fix
    fix = (
        re.sub(r'" (?=\w+=")', '", ', fix.replace("date-format=", "date_format=").replace("row-tag=", "row_tag="))
        if fix
        else fix
    )
    for typed, declared in _OPTION_SPELLINGS:
        fix = fix.replace(typed, declared) if fix else fix
    return fix
