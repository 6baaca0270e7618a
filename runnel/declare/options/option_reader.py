"""Read the options that a user gave, value by value. A wrong one is told, and counts as not given.

Pure: whoever reads passes in what to do with a mistake.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runnel.declare.model.column_types import Column, columns
from runnel.declare.options.duration import FIX, seconds_of
from runnel.errors import Mistake, nearest
from runnel.names import shown

_TAG = re.compile(r"[A-Za-z0-9_.-]+\Z", re.ASCII)
_PARTITION = re.compile(r"\s*(`[^`]+`|[\w.]+|[A-Za-z]+\s*\(\s*(\d+\s*,\s*)?(`[^`]+`|[\w. ]+)\))\s*\Z")
Note = Callable[[str, Mistake], None]


class Given:
    """The options of one thing. `owner` is how messages call it; `note` gets each mistake with the option's name."""

    def __init__(self, owner: str, values: Mapping[str, Any], note: Note) -> None:
        self.owner = owner
        self._values = values
        self._note = note

    def tell(self, name: str, mistake: Mistake) -> None:
        """Tell a mistake about an option."""
        self._note(name, mistake)

    def wrong(self, name: str, what: str, fix: str | None = None) -> None:
        """Tell that an option is wrong."""
        self.tell(name, Mistake("DECLARE_OPTION", f"{self.owner}: {what}", fix=fix))

    def unknown(self, names: Sequence[str], known: Sequence[str]) -> None:
        """Tell about options that there are not."""
        for name in names:
            close = nearest(name, known)
            what = f"there is no option `{name}`" + (f"; close: `{close}`" if close else "")
            self.wrong(name, what, f"known: {', '.join(known)}")

    def text(self, name: str) -> str | None:
        """Return some text."""
        value = self._values.get(name)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self.wrong(name, f"`{name}` must be text, not {shown(value)}", f'write {name}="..."')
        return None

    def texts(self, name: str, what: str = "text") -> tuple[str, ...]:
        """Return one or several texts."""
        value = self._values.get(name)
        if value is None:
            return ()
        found = [value] if isinstance(value, str) else value
        fix = f'write {name}="a" or {name}=["a", "b"]'
        if not isinstance(found, list | tuple) or not all(isinstance(one, str) and one.strip() for one in found):
            self.wrong(name, f"`{name}` must be {what} or a list of them, not {shown(value)}", fix)
            return ()
        if len(set(found)) < len(found):
            twice = next(one for one in found if found.count(one) > 1)
            self.wrong(name, f"`{name}` has {shown(twice)} twice", "name it once")
        return tuple(dict.fromkeys(found))

    def tags(self, name: str = "tags") -> tuple[str, ...]:
        """Return words that a selection can name."""
        found = self.texts(name, "a word")
        for tag in found:
            if not _TAG.match(tag):
                self.wrong(name, f"{shown(tag)} is not a tag", "use letters, digits, _, - and .")
        return found

    def partition(self, name: str = "partition") -> tuple[str, ...]:
        """Return columns or transforms of them."""
        found = self.texts(name, "a column")
        for text in found:
            if not _PARTITION.match(text):
                fix = "write a column or a transform of one: day, month(ts), bucket(16, id), truncate(4, name)"
                self.wrong(name, f"{shown(text)} is not a way to partition", fix)
        return found

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._values.get(name)
        if not isinstance(value, bool | None):
            self.wrong(name, f"`{name}` must be true or false, not {shown(value)}")
        return value is True

    def number(self, name: str, default: int) -> int:
        """Return a whole number, 0 or more."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.wrong(name, f"`{name}` must be a whole number, 0 or more, not {shown(value)}")
            return default
        return value

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str | None:
        """Return one of a few words."""
        value = self._values.get(name)
        if value is None:
            return default
        if value not in allowed:
            close = nearest(value, allowed) if isinstance(value, str) else None
            what = f"`{name}` can't be {shown(value)}" + (f"; close: `{close}`" if close else "")
            self.wrong(name, what, f"use one of {', '.join(allowed)}")
            return default
        return str(value)

    def duration(self, name: str, *words: str) -> str | None:
        """Return a duration as it was written, or one of some words that stand for one."""
        value = self._values.get(name)
        if isinstance(value, str) and value in words:
            return value
        return value if value is not None and self._seconds(name, value) is not None else None

    def seconds(self, name: str) -> float | None:
        """Return a duration, or a number of seconds, in seconds."""
        value = self._values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return float(value)
        return None if value is None else self._seconds(name, value)

    def _seconds(self, name: str, value: object) -> float | None:
        try:
            return float(seconds_of(value))
        except Mistake:
            self.wrong(name, f"`{name}` must be a duration, not {shown(value)}", FIX)
            return None

    def pairs(self, name: str, kind: type | tuple[type, ...], wanted: str) -> tuple[tuple[str, Any], ...]:
        """Return a mapping from text to values of a kind."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            self.wrong(name, f"`{name}` must be a mapping, not {shown(value)}", f'write {name}={{"name": {wanted}}}')
            return ()
        for key, one in value.items():
            if not isinstance(one, kind) or (isinstance(one, bool) and kind is int):
                self.wrong(name, f"`{name}` has {shown(one)} for `{key}`", f'write {name}={{"{key}": {wanted}}}')
        return tuple((key, one) for key, one in value.items() if isinstance(one, kind))

    def schema(self, name: str = "schema") -> tuple[Column, ...] | None:
        """Return columns."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return columns(text)
        except Mistake as mistake:
            mistake.what = f"{self.owner}: {mistake.what}"
            self.tell(name, mistake)
            return None
