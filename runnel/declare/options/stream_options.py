"""Read the options of a stream task, and report those that conflict."""

from collections.abc import Mapping, Sequence
from typing import Any

from runnel.declare.model.flow import TaskOptions
from runnel.declare.options.option_reader import OptionReader
from runnel.errors import did_you_mean, join_names
from runnel.names import quote_value

_STREAM_ONLY = ("trigger", "watermark", "output")
_NEVER_STREAM = ("by", "by_input", "lookback", "trust_by", "reference", "rowwise", "volatile")
_FIX = 'write watermark=("ts", "10 minutes"), or watermark={"clicks": ("ts", "10 minutes")} if streams differ'


def read_watermarks(reader: OptionReader, value: Any, streams: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """Read the watermark of each stream that has one: its parameter, a column, and how late a row may be.

    A single pair applies to all streams that have the column.
    """
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        pair = _read_pair(reader, value)
        return (("", *pair),) if pair else ()
    entries = []
    for name, pair_value in value.items():
        matching_stream = next((stream for stream in streams if name in (stream, stream.rpartition(".")[2])), None)
        if matching_stream is None:
            what = f"`watermark` names {quote_value(name)}, which is not read as a stream"
            reader.reject("watermark", what + did_you_mean(str(name), streams), f"its streams: {join_names(streams)}")
        elif pair := _read_pair(reader, pair_value):
            entries.append((matching_stream, *pair))
    return tuple(entries)


def refuse_stream_conflicts(reader: OptionReader, options: TaskOptions) -> None:
    """Report options that have no meaning for this task, because it is a stream or because it is not."""
    if not options.stream:
        for name in _STREAM_ONLY:
            if getattr(options, name):
                reader.reject(
                    name, f"`{name}` applies only to streams, but there is no `stream`", 'add stream="clicks"'
                )
        return
    for name in _NEVER_STREAM:
        if getattr(options, name):
            reader.reject(
                name, f"`{name}` has no meaning for a stream, which continues from its position", "leave it out"
            )
    if options.output == "update" and not options.key:
        what = '`output="update"` needs the columns that identify a row'
        reader.reject("output", what, 'add key="page", or key=["page", "minute"]')
    if options.key and options.output != "update":
        what = "`key` has no meaning for a stream that only appends rows"
        reader.reject("key", what, 'add output="update", so that a row replaces the row with the same key')


def _read_pair(reader: OptionReader, value: Any) -> tuple[str, str] | None:
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(isinstance(item, str) for item in value):
        reader.reject("watermark", f"`watermark` must be a column and a duration, not {quote_value(value)}", _FIX)
        return None
    delay = OptionReader(reader.owner, {"watermark": value[1]}, reader.report_mistake).duration("watermark")
    return (value[0], value[1]) if delay else None
