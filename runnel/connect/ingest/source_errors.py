"""Errors of reading files, told to somebody who declared a source instead of typing `runnel load`."""

from collections.abc import Iterator
from contextlib import contextmanager

from runnel.declare.model.flow import Source
from runnel.errors import Mistake, RunnelError

_DECLARED = ("LOAD_PARTITION", "LOAD_KEY", "LOAD_OPTION", "LOAD_CSV_OPTION")
_WORDS = (
    ("--on-bad drop", 'on_bad="drop" or on_bad="quarantine"'),
    ("--encoding latin-1", 'encoding="latin-1"'),
    ("--encoding", "encoding"),
    ("--on-new-column add", 'on_new_column="add"'),
    ("--no-header", "header=False"),
    ("--schema", "schema="),
    ("--format json", 'format="json"'),
    ("--format", "format="),
    ("--partition", "partition="),
    ("--key order_id", 'key="order_id"'),
)


@contextmanager
def told(source: Source) -> Iterator[None]:
    """Turn mistakes of a load into those of a source.

    What is wrong in a file is a failed run, not a mistake in what was declared.
    """
    try:
        yield
    except Mistake as error:
        if not error.code.startswith("LOAD_"):
            raise
        code = error.code.replace("LOAD_", "SOURCE_", 1)
        if error.code in _DECLARED:
            raise Mistake(code, error.what, at=str(source.place), fix=_said(error.fix)) from error
        raise RunnelError(code, error.what, at=error.at, fix=_said(error.fix)) from error


def _said(fix: str | None) -> str | None:
    for typed, declared in _WORDS:
        fix = fix.replace(typed, declared) if fix else fix
    return fix
