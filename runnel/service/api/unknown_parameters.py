"""Refuse query parameters that a route does not have: a misspelled `limt=5` would otherwise be ignored silently."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.exceptions import RequestValidationError

from runnel.errors import did_you_mean

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant


async def refuse_unknown_parameters(request: Request) -> None:
    """Raise for a query parameter that the request's route does not declare, with the nearest one that it does."""
    if not request.query_params:
        return
    declared = frozenset(_iter_parameters(request.scope["route"].dependant))
    unknown_names = [name for name in request.query_params if name not in declared]
    if unknown_names:
        raise RequestValidationError(
            [
                {
                    "type": "extra_forbidden",
                    "loc": ("query", name),
                    "msg": f"there is no such parameter{did_you_mean(name, declared)}",
                }
                for name in unknown_names
            ]
        )


def _iter_parameters(dependant: "Dependant") -> Iterator[str]:
    """Yield the names of the query parameters of a route and of what it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _iter_parameters(inner)
