"""Paginate long lists."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

T = TypeVar("T")


class ListPage(BaseModel, Generic[T]):
    """A part of a list; `next` is the cursor of the part after it, null at the end."""

    items: list[T]
    next: str | None = Field(description="The cursor of the next page, null at the end")


def build_page(
    items: Sequence[Any], limit: int, get_cursor: Callable[[Any], str], to_json: Callable[[Any], Any]
) -> dict[str, Any]:
    """Return `items` as a page. The caller reads one item more than `limit`, which tells whether there is a next page.

    >>> build_page([1, 2, 3], 2, str, lambda item: item * 10)
    {'items': [10, 20], 'next': '2'}
    """
    page_items = items[:limit]
    return {
        "items": [to_json(item) for item in page_items],
        "next": get_cursor(page_items[-1]) if len(items) > limit else None,
    }


def build_single_page(items: Sequence[Any]) -> dict[str, Any]:
    """Return a list that is always short as a single page."""
    return {"items": list(items), "next": None}
