"""Read the options of `rn.http` without an address: events that programs push to the service."""

from collections.abc import Mapping
from typing import Any

from runnel.declare.model.column_types import Column
from runnel.declare.model.endpoints import Push
from runnel.declare.options.option_reader import OptionReader
from runnel.errors import did_you_mean
from runnel.names import quote_value

_OPTIONS = ("url", "schema", "key", "keep")
_DEFAULT_KEEP_SECONDS = Push().keep_seconds


def read_push(reader: OptionReader, values: Mapping[str, Any]) -> Push:
    """Return the origin; report options that apply only to a polled API."""
    for name, value in values.items():
        if value is not None and name not in _OPTIONS:
            what = f"`{name}` applies only to an API that is polled, and there is no address"
            reader.reject(
                name, what, f'name the API: rn.http("https://api.example.com/orders", ...), or leave `{name}` out'
            )
    schema = reader.schema()
    return Push(schema, read_key(reader, schema), reader.seconds("keep") or _DEFAULT_KEEP_SECONDS)


def read_key(reader: OptionReader, schema: tuple[Column, ...] | None) -> tuple[str, ...]:
    """Return the key columns; report those that the schema lacks."""
    key_columns = reader.texts("key", "a column")
    names = [column.name for column in schema or ()]
    for column in key_columns:
        if names and column.lower() not in [name.lower() for name in names]:
            what = f"`key` names {quote_value(column)}, which is not in its schema" + did_you_mean(column, names)
            reader.reject("key", what, f"its columns: {', '.join(names)}")
    if key_columns and reader.flag("append"):
        reader.reject("append", "records with a `key` replace earlier ones", "leave `append` or `key` out")
    return key_columns
