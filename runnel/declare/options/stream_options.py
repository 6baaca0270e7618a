"""Read the options of a task that is a stream, and tell which of them don't fit together."""

from collections.abc import Mapping, Sequence
from typing import Any

from runnel.declare.model.flow import Options
from runnel.declare.options.option_reader import Given
from runnel.errors import listed, nearest
from runnel.names import shown

_ONLY = ("trigger", "watermark", "output")
_NEVER = ("by", "by_input", "lookback", "trust_by", "reference", "rowwise", "volatile")
_FIX = 'write watermark=("ts", "10 minutes"), or watermark={"clicks": ("ts", "10 minutes")} where streams differ'


def watermarks(given: Given, value: Any, streams: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """Return the watermark of each stream that has one: its parameter, a column, and how late a row may be.

    One pair is for all streams that have the column.
    """
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        pair = _pair(given, value)
        return (("", *pair),) if pair else ()
    found = []
    for name, one in value.items():
        known = next((stream for stream in streams if name in (stream, stream.rpartition(".")[2])), None)
        if known is None:
            close = nearest(str(name), streams)
            what = f"`watermark` names {shown(name)}, which is not read as a stream"
            given.wrong("watermark", what + (f"; close: `{close}`" if close else ""), f"its streams: {listed(streams)}")
        elif pair := _pair(given, one):
            found.append((known, *pair))
    return tuple(found)


def refuse_strange(given: Given, options: Options) -> None:
    """Tell which options have no meaning for this task, because it is a stream or because it is none."""
    if not options.stream:
        for name in _ONLY:
            if getattr(options, name):
                given.wrong(name, f"`{name}` is about streams, but there is no `stream`", 'add stream="clicks"')
        return
    for name in _NEVER:
        if getattr(options, name):
            given.wrong(name, f"`{name}` has no meaning for a stream, which goes on from where it was", "leave it out")
    if options.output == "update" and not options.key:
        what = '`output="update"` needs the columns that identify a row'
        given.wrong("output", what, 'add key="page", or key=["page", "minute"]')
    if options.key and options.output != "update":
        what = "`key` has no meaning for a stream that only appends rows"
        given.wrong("key", what, 'add output="update", so that a row takes the place of the one with its key')


def _pair(given: Given, value: Any) -> tuple[str, str] | None:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(one, str) for one in value):
        given.wrong("watermark", f"`watermark` must be a column and a duration, not {shown(value)}", _FIX)
        return None
    late = Given(given.owner, {"watermark": value[1]}, given.tell).duration("watermark")
    return (value[0], value[1]) if late else None
