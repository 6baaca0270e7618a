"""Columns that a source needs in every row, though its table's columns may be null. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from runnel.connect.load.column_matching import Choice
from runnel.declare.model.flow import Source


def never_null(choices: Sequence[Choice], source: Source) -> tuple[Choice, ...]:
    """Return choices of which more are required: a row that is null there is bad."""
    names = {name.lower() for name in source.never_null}
    return tuple(replace(choice, required=choice.required or choice.name.lower() in names) for choice in choices)


def as_declared(settled: Sequence[Choice], choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Return what was settled, required as it was chosen: so is the table's column."""
    required = {choice.name for choice in choices if choice.required}
    return tuple(replace(choice, required=choice.name in required) for choice in settled)
