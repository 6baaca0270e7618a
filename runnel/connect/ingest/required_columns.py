"""Require values in the columns that a source declares as never null, though the table's columns are nullable. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from runnel.connect.load.column_matching import ColumnChoice
from runnel.declare.model.flow import Source


def require_values(choices: Sequence[ColumnChoice], source: Source) -> tuple[ColumnChoice, ...]:
    """Return choices in which the source's `never_null` columns are required: a row that is null there is bad."""
    names = {name.lower() for name in source.never_null}
    return tuple(replace(choice, required=choice.required or choice.name.lower() in names) for choice in choices)


def restore_required(inferred: Sequence[ColumnChoice], choices: Sequence[ColumnChoice]) -> tuple[ColumnChoice, ...]:
    """Return the inferred choices with the `required` flags of the original ones, which the table's columns get."""
    required = {choice.name for choice in choices if choice.required}
    return tuple(replace(choice, required=choice.name in required) for choice in inferred)
