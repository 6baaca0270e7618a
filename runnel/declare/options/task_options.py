"""Read the options of a task, the same for Python and SQL."""

import re
from collections.abc import Sequence
from typing import Any

from runnel.declare.model.flow import Check, Options
from runnel.declare.options.check_parser import parse
from runnel.declare.options.deadline import deadline_of
from runnel.declare.options.expression_list import parts
from runnel.declare.options.option_reader import Given
from runnel.declare.options.stream_options import refuse_strange, watermarks
from runnel.errors import Mistake, nearest
from runnel.names import shown

OUTPUTS = ("append", "update")
_NAMES = """
    by by_input reference lookback trust_by rowwise key volatile stream trigger watermark output schema partition sort
    properties tags owner retries timeout deadline checks
"""
KNOWN = tuple(_NAMES.split())
_SORT = re.compile(r"\s*(`[^`]+`|[\w.]+)(\s+(asc|desc))?\s*\Z", re.IGNORECASE)


def read(given: Given, values: dict[str, Any], inputs: Sequence[str]) -> Options:
    """Return the options in `values`; `inputs` are the names that a task calls its tables by."""
    schema = given.schema()
    names = [column.name for column in schema] if schema else None
    streams = tuple(name for name, _ in _of_inputs(given, "stream", _alone(given, "stream"), inputs))
    options = Options(
        by=_columns(given, "by", names),
        by_input=_of_inputs(given, "by_input", given.pairs("by_input", str, '"to_date(ts)"'), inputs),
        reference=tuple(name for name, _ in _of_inputs(given, "reference", _alone(given, "reference"), inputs)),
        lookback=_of_inputs(given, "lookback", _not_negative(given), inputs),
        trust_by=given.flag("trust_by"),
        rowwise=given.flag("rowwise"),
        key=_columns(given, "key", names),
        volatile=given.flag("volatile"),
        stream=streams,
        trigger=given.duration("trigger"),
        watermark=watermarks(given, values.get("watermark"), streams),
        output=given.choice("output", OUTPUTS),
        schema=schema,
        partition=given.partition(),
        sort=_sort(given),
        properties=_properties(given),
        tags=given.tags(),
        owner=given.text("owner"),
        retries=given.number("retries", Options.retries),
        timeout_seconds=given.seconds("timeout"),
        deadline=_deadline(given, values.get("deadline")),
    )
    _refuse_loose_slices(given, options)
    refuse_strange(given, options)
    return options


def checks(given: Given, value: Any) -> tuple[Check, ...]:
    """Return the checks of a task: made by `rn.not_null` and the like, or as text."""
    if value is None:
        return ()
    found: list[Check] = []
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, Check):
            found.append(one)
        elif isinstance(one, str):
            try:
                found.append(parse(one))
            except Mistake as mistake:
                mistake.what = f"{given.owner}: {mistake.what}"
                given.tell("checks", mistake)
        else:
            fix = 'write checks=[rn.not_null("order_id"), rn.check("amount >= 0")]'
            given.wrong("checks", f"{shown(one)} is not a check", fix)
    return tuple(found)


def _columns(given: Given, name: str, schema: Sequence[str] | None) -> tuple[str, ...]:
    found = given.texts(name, "a column")
    for column in found:
        if schema is not None and column.lower() not in [one.lower() for one in schema]:
            close = nearest(column, schema)
            what = f"`{name}` names {shown(column)}, which is not in its schema"
            given.wrong(name, what + (f"; close: `{close}`" if close else ""), f"its columns: {', '.join(schema)}")
    return found


def _alone(given: Given, name: str) -> tuple[tuple[str, Any], ...]:
    return tuple((one, None) for one in given.texts(name, "an input"))


def _of_inputs(
    given: Given, name: str, pairs: tuple[tuple[str, Any], ...], inputs: Sequence[str]
) -> tuple[tuple[str, Any], ...]:
    """Return the pairs whose first half is an input. SQL tasks may leave out the layer."""
    last = {one.rpartition(".")[2]: one for one in inputs}
    found = []
    for key, value in pairs:
        if key in inputs or key in last:
            found.append((key if key in inputs else last[key], value))
            continue
        close = nearest(key, inputs)
        what = f"`{name}` names {shown(key)}, which is not one of its inputs" + (f"; close: `{close}`" if close else "")
        given.wrong(name, what, f"its inputs: {', '.join(inputs) or 'none'}")
    return tuple(found)


def _not_negative(given: Given) -> tuple[tuple[str, Any], ...]:
    found = given.pairs("lookback", int, "6")
    if any(value < 0 for _, value in found):
        given.wrong("lookback", "`lookback` can't be negative", "write how many slices before it a slice reads")
    return found


def _refuse_loose_slices(given: Given, options: Options) -> None:
    """Tell what stands against slices: options that need `by`, and parts that don't fit together."""
    number = len(options.by)
    for name in ("by_input", "lookback", "trust_by"):
        if getattr(options, name) and not number:
            given.wrong(name, f"`{name}` is about slices, but there is no `by`", 'add by="day"')
    for parameter, text in options.by_input:
        found = len(parts(text))
        if number and found != number:
            what = (
                f"`by_input` gives {found} expression{'' if found == 1 else 's'} for {parameter}, but `by` has {number}"
            )
            given.wrong("by_input", what, "list one for each column of `by`, with commas")
        if parameter in options.reference:
            what = f"`by_input` and `reference` both name {parameter}: a reference has no slices"
            given.wrong("by_input", what, "remove it from one of them")
    if options.lookback and number > 1:
        what = "`lookback` needs slices that follow one another, but `by` has several columns"
        given.wrong("lookback", what, "let `by` be one column of type date, int or long")


def _sort(given: Given) -> tuple[str, ...]:
    found = given.texts("sort", "a column")
    for text in found:
        if not _SORT.match(text):
            given.wrong("sort", f"{shown(text)} is not an order", 'write a column, or "amount desc"')
    return found


def _properties(given: Given) -> tuple[tuple[str, str], ...]:
    found = given.pairs("properties", (str, int, float, bool), '"value"')
    return tuple((key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in found)


def _deadline(given: Given, value: Any) -> str | None:
    if value is None:
        return None
    try:
        deadline_of(value)
    except Mistake as mistake:
        given.wrong("deadline", mistake.what, mistake.fix)
        return None
    return str(value)
