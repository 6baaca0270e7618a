"""What `rn.http` says of events that are pushed, where it has no address."""

from collections.abc import Mapping
from typing import Any

from runnel.declare.model.column_types import Column
from runnel.declare.model.endpoints import Push
from runnel.declare.options.option_reader import Given
from runnel.errors import nearest
from runnel.names import shown

_OPTIONS = ("url", "schema", "key", "keep")
_KEPT_SECONDS = Push().keep_seconds


def push_of(given: Given, values: Mapping[str, Any]) -> Push:
    """Return the origin; what is about APIs that are polled is told."""
    for name, value in values.items():
        if value is not None and name not in _OPTIONS:
            what = f"`{name}` is about an API that is polled, and there is no address"
            given.wrong(
                name, what, f'name the API: rn.http("https://api.example.com/orders", ...), or leave `{name}` out'
            )
    schema = given.schema()
    return Push(schema, key_of(given, schema), given.seconds("keep") or _KEPT_SECONDS)


def key_of(given: Given, schema: tuple[Column, ...] | None) -> tuple[str, ...]:
    """Return the columns of a key, which the schema has."""
    found = given.texts("key", "a column")
    names = [column.name for column in schema or ()]
    for column in found:
        if names and column.lower() not in [name.lower() for name in names]:
            close = nearest(column, names)
            what = f"`key` names {shown(column)}, which is not in its schema" + (f"; close: `{close}`" if close else "")
            given.wrong("key", what, f"its columns: {', '.join(names)}")
    if found and given.flag("append"):
        given.wrong("append", "records with a `key` take the place of earlier ones", "leave `append` or `key` out")
    return found
