"""`rn.sink`: declare where a table is handed on to. Only recorded so far."""

from collections.abc import Callable
from typing import Any, TypeVar

from runnel.declare.flow import Sink
from runnel.declare.registry import current
from runnel.errors import Mistake
from runnel.names import TableName

F = TypeVar("F", bound=Callable[..., Any])


def sink(table: str, target: object = None) -> Callable[[F], F]:
    """Declare that a table is handed on to `target`, or to the function that this decorates."""
    registry = current()
    place = registry.here()
    try:
        name = TableName.parse(table)
    except Mistake as mistake:
        registry.note(mistake, place)
        return lambda function: function
    if target is not None:
        registry.add(Sink(name, target, place))

    def declare(function: F) -> F:
        registry.add(Sink(name, function, place))
        return function

    return declare
