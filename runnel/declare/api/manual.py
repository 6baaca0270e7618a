"""`rn.manual`."""

from runnel.declare.model.endpoints import Manual, Wrong
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import current


def manual(schema: str | None = None) -> Manual | Wrong:
    """Let people fill a table with `runnel load` or `runnel put`."""
    registry = current()
    place = registry.here()
    given = Given("rn.manual()", {"schema": schema}, lambda _, mistake: registry.note(mistake, place))
    found = given.schema()
    return Wrong() if schema is not None and found is None else Manual(found)
