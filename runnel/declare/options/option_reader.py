"""Read and check the options that a user set. A wrong option is reported and treated as not set.

Pure: the caller passes in what to do with a mistake.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runnel.declare.model.column_types import Column, parse_columns
from runnel.declare.options.duration import FIX, parse_duration
from runnel.errors import Mistake, close_hint, did_you_mean, find_nearest
from runnel.names import quote_value

_TAG = re.compile(r"[A-Za-z0-9_.-]+\Z", re.ASCII)
_PARTITION = re.compile(r"\s*(`[^`]+`|[\w.]+|[A-Za-z]+\s*\(\s*(\d+\s*,\s*)?(`[^`]+`|[\w. ]+)\))\s*\Z")
MistakeCallback = Callable[[str, Mistake], None]


class OptionReader:
    """Reads the options of one declaration. Messages call it `owner`; `on_mistake` gets each mistake and its option."""

    def __init__(self, owner: str, values: Mapping[str, Any], on_mistake: MistakeCallback) -> None:
        self.owner = owner
        self._values = values
        self._on_mistake = on_mistake

    def report_mistake(self, name: str, mistake: Mistake) -> None:
        """Report a mistake about an option."""
        self._on_mistake(name, mistake)

    def reject(self, name: str, what: str, fix: str | None = None) -> None:
        """Report that an option is wrong."""
        self.report_mistake(name, Mistake("DECLARE_OPTION", f"{self.owner}: {what}", fix=fix))

    def reject_unknown(
        self, names: Sequence[str], allowed: Sequence[str], elsewhere: Mapping[str, str] | None = None
    ) -> None:
        """Report options that do not exist; `elsewhere` says to which function an option belongs instead."""
        for name in names:
            if elsewhere and name in elsewhere:
                owner = elsewhere[name]
                self.reject(name, f"`{name}` is an option of {owner}", f"move it to {owner}(..., {name}=...)")
                continue
            what = f"there is no option `{name}`" + did_you_mean(name, allowed)
            self.reject(name, what, f"known: {', '.join(allowed)}")

    def text(self, name: str) -> str | None:
        """Return an option whose value is text."""
        value = self._values.get(name)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self.reject(name, f"`{name}` must be text, not {quote_value(value)}", f'write {name}="..."')
        return None

    def texts(self, name: str, noun: str = "text") -> tuple[str, ...]:
        """Return an option whose value is one text or several."""
        value = self._values.get(name)
        if value is None:
            return ()
        items = [value] if isinstance(value, str) else value
        fix = f'write {name}="a" or {name}=["a", "b"]'
        if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item.strip() for item in items):
            self.reject(name, f"`{name}` must be {noun} or a list of them, not {quote_value(value)}", fix)
            return ()
        if len(set(items)) < len(items):
            duplicate = next(item for item in items if items.count(item) > 1)
            self.reject(name, f"`{name}` has {quote_value(duplicate)} twice", "name it once")
        return tuple(dict.fromkeys(items))

    def tags(self, name: str = "tags") -> tuple[str, ...]:
        """Return tags that a selection can name."""
        tag_names = self.texts(name, "a word")
        for tag in tag_names:
            if not _TAG.match(tag):
                self.reject(name, f"{quote_value(tag)} is not a tag", "use letters, digits, _, - and .")
        return tag_names

    def partition(self, name: str = "partition") -> tuple[str, ...]:
        """Return partition columns or transforms of columns."""
        transforms = self.texts(name, "a column")
        for text in transforms:
            if not _PARTITION.match(text):
                fix = "write a column or a transform of one: day, month(ts), bucket(16, id), truncate(4, name)"
                self.reject(name, f"{quote_value(text)} is not a way to partition", fix)
        return transforms

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._values.get(name)
        if not isinstance(value, bool | None):
            self.reject(name, f"`{name}` must be true or false, not {quote_value(value)}")
        return value is True

    def number(self, name: str, default: int) -> int:
        """Return a whole number, 0 or more."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.reject(name, f"`{name}` must be a whole number, 0 or more, not {quote_value(value)}")
            return default
        return value

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str | None:
        """Return one of the allowed words."""
        value = self._values.get(name)
        if value is None:
            return default
        if value not in allowed:
            close = find_nearest(value, allowed) if isinstance(value, str) else None
            what = f"`{name}` can't be {quote_value(value)}" + close_hint(close)
            self.reject(name, what, f"use one of {', '.join(allowed)}")
            return default
        return str(value)

    def duration(self, name: str, *keywords: str) -> str | None:
        """Return a duration as the user wrote it, or one of the keywords allowed instead."""
        value = self._values.get(name)
        if isinstance(value, str) and value in keywords:
            return value
        return value if value is not None and self._parse_seconds(name, value) is not None else None

    def seconds(self, name: str) -> float | None:
        """Return the seconds of an option that is a duration or a number of seconds."""
        value = self._values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return float(value)
        return None if value is None else self._parse_seconds(name, value)

    def _parse_seconds(self, name: str, value: object) -> float | None:
        try:
            return float(parse_duration(value))
        except Mistake:
            self.reject(name, f"`{name}` must be a duration, not {quote_value(value)}", FIX)
            return None

    def pairs(self, name: str, kind: type | tuple[type, ...], example: str) -> tuple[tuple[str, Any], ...]:
        """Return the pairs of a mapping from text to values of a type."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            self.reject(
                name, f"`{name}` must be a mapping, not {quote_value(value)}", f'write {name}={{"name": {example}}}'
            )
            return ()
        for key, item in value.items():
            if not isinstance(item, kind) or (isinstance(item, bool) and kind is int):
                self.reject(
                    name, f"`{name}` has {quote_value(item)} for `{key}`", f'write {name}={{"{key}": {example}}}'
                )
        return tuple((key, item) for key, item in value.items() if isinstance(item, kind))

    def schema(self, name: str = "schema") -> tuple[Column, ...] | None:
        """Return the columns of a schema."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_columns(text)
        except Mistake as mistake:
            mistake.what = f"{self.owner}: {mistake.what}"
            self.report_mistake(name, mistake)
            return None
