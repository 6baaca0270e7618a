"""`rn.manual`."""

from runnel.declare.model.endpoints import InvalidEndpoint, Manual
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import current_registry


def manual(schema: str | None = None) -> Manual | InvalidEndpoint:
    """Let people fill a table with `runnel load` or `runnel put`."""
    registry = current_registry()
    place = registry.caller_location()
    reader = OptionReader("rn.manual()", {"schema": schema}, lambda _, mistake: registry.report_mistake(mistake, place))
    columns = reader.schema()
    return InvalidEndpoint() if schema is not None and columns is None else Manual(columns)
