"""Pages of lists that may be long."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    """A part of a list; `next` is the cursor of the part after it, null at the end."""

    items: list[T]
    next: str | None = Field(description="The cursor of the next page, null at the end")


def page(found: Sequence[Any], limit: int, cursor: Callable[[Any], str], shape: Callable[[Any], Any]) -> dict[str, Any]:
    """Return what was found as a page, where one more was asked for than the page holds.

    >>> page([1, 2, 3], 2, str, lambda one: one * 10)
    {'items': [10, 20], 'next': '2'}
    """
    shown = found[:limit]
    return {"items": [shape(one) for one in shown], "next": cursor(shown[-1]) if len(found) > limit else None}


def whole(found: Sequence[Any]) -> dict[str, Any]:
    """Return a list that is always short as its only page."""
    return {"items": list(found), "next": None}
