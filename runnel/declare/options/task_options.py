"""Read the options of a task, the same for Python and SQL."""

import re
from collections.abc import Sequence
from typing import Any

from runnel.declare.model.flow import ALL_SLICES, Check, TaskOptions
from runnel.declare.options.check_parser import parse_check
from runnel.declare.options.deadline import parse_deadline
from runnel.declare.options.expression_list import split_expressions
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.options.stream_options import read_watermarks, refuse_stream_conflicts
from runnel.declare.sql.slice_expression import find_slice_mistake
from runnel.errors import Mistake, did_you_mean, plural
from runnel.names import quote_value

OUTPUTS = ("append", "update")
_NAMES = """
    by by_input reference lookback trust_by rowwise key volatile stream trigger watermark output schema partition sort
    properties tags owner retries retry_on timeout deadline checks
"""
OPTION_NAMES = tuple(_NAMES.split())
_SORT = re.compile(r"\s*(`[^`]+`|[\w.]+)(\s+(asc|desc))?\s*\Z", re.IGNORECASE)


def read(reader: OptionReader, values: dict[str, Any], inputs: Sequence[str]) -> TaskOptions:
    """Read the options in `values`; `inputs` are the task's names for its input tables."""
    schema = reader.schema()
    names = [column.name for column in schema] if schema else None
    streams = tuple(name for name, _ in _resolve_inputs(reader, "stream", _read_input_names(reader, "stream"), inputs))
    options = TaskOptions(
        by=_read_columns(reader, "by", names),
        by_input=_resolve_inputs(reader, "by_input", reader.pairs("by_input", str, '"to_date(ts)"'), inputs),
        reference=tuple(
            name for name, _ in _resolve_inputs(reader, "reference", _read_input_names(reader, "reference"), inputs)
        ),
        lookback=_resolve_inputs(reader, "lookback", _read_lookback(reader), inputs),
        trust_by=reader.flag("trust_by"),
        rowwise=reader.flag("rowwise"),
        key=_read_columns(reader, "key", names),
        volatile=reader.flag("volatile"),
        stream=streams,
        trigger=reader.duration("trigger"),
        watermark=read_watermarks(reader, values.get("watermark"), streams),
        output=reader.choice("output", OUTPUTS),
        schema=schema,
        partition=reader.partition(),
        sort=_read_sort(reader),
        properties=_read_properties(reader),
        tags=reader.tags(),
        owner=reader.text("owner"),
        retries=reader.number("retries", TaskOptions.retries),
        retry_on=_read_exception_names(reader),
        timeout_seconds=reader.seconds("timeout"),
        deadline=_read_deadline(reader, values.get("deadline")),
    )
    _refuse_slice_conflicts(reader, options)
    refuse_stream_conflicts(reader, options)
    return options


def _read_exception_names(reader: OptionReader) -> tuple[str, ...]:
    names = reader.texts("retry_on", "the name of an exception")
    for name in [name for name in names if not name.isidentifier()]:
        fix = 'write retry_on="RuntimeError", without its module'
        reader.reject("retry_on", f"{quote_value(name)} of `retry_on` is not the name of an exception", fix)
    return names


def read_checks(reader: OptionReader, value: Any) -> tuple[Check, ...]:
    """Read the checks of a task: values of `rn.not_null` and the like, or text."""
    if value is None:
        return ()
    parsed_checks: list[Check] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, Check):
            parsed_checks.append(item)
        elif isinstance(item, str):
            try:
                parsed_checks.append(parse_check(item))
            except Mistake as mistake:
                mistake.what = f"{reader.owner}: {mistake.what}"
                reader.report_mistake("checks", mistake)
        else:
            fix = 'write checks=[rn.not_null("order_id"), rn.check("amount >= 0")]'
            reader.reject("checks", f"{quote_value(item)} is not a check", fix)
    return tuple(parsed_checks)


def _read_columns(reader: OptionReader, name: str, schema: Sequence[str] | None) -> tuple[str, ...]:
    columns = reader.texts(name, "a column")
    for column in columns:
        if schema is not None and column.lower() not in [schema_name.lower() for schema_name in schema]:
            what = f"`{name}` names {quote_value(column)}, which is not in its schema"
            reader.reject(name, what + did_you_mean(column, schema), f"its columns: {', '.join(schema)}")
    return columns


def _read_input_names(reader: OptionReader, name: str) -> tuple[tuple[str, Any], ...]:
    return tuple((input_name, None) for input_name in reader.texts(name, "an input"))


def _resolve_inputs(
    reader: OptionReader, name: str, pairs: tuple[tuple[str, Any], ...], inputs: Sequence[str]
) -> tuple[tuple[str, Any], ...]:
    """Return the pairs whose first element is an input. SQL tasks may leave out the layer."""
    by_last_part = {input_name.rpartition(".")[2]: input_name for input_name in inputs}
    resolved = []
    for key, value in pairs:
        if key in inputs or key in by_last_part:
            resolved.append((key if key in inputs else by_last_part[key], value))
            continue
        what = f"`{name}` names {quote_value(key)}, which is not one of its inputs" + did_you_mean(key, inputs)
        reader.reject(name, what, f"its inputs: {', '.join(inputs) or 'none'}")
    return tuple(resolved)


def _read_lookback(reader: OptionReader) -> tuple[tuple[str, Any], ...]:
    pairs = reader.pairs("lookback", int, "6")
    if any(value < 0 for _, value in pairs):
        reader.reject("lookback", "`lookback` can't be negative", "write how many slices before it a slice reads")
    return pairs


def _refuse_slice_conflicts(reader: OptionReader, options: TaskOptions) -> None:
    """Report mistakes about slices: options that need `by`, and options that conflict."""
    by_count = len(options.by)
    for name in ("by_input", "lookback", "trust_by"):
        if getattr(options, name) and not by_count:
            reader.reject(name, f"`{name}` applies only to slices, but there is no `by`", 'add by="day"')
    for parameter, text in options.by_input:
        if text != ALL_SLICES and (mistake := find_slice_mistake(text)) is not None:
            what = f"`by_input` gives {quote_value(text)} for {parameter}, which {mistake}"
            reader.reject("by_input", what, "name the slice of a row by an expression of its own columns")
            continue
        count = len(split_expressions(text))
        if by_count and count != by_count and text != ALL_SLICES:
            what = f"`by_input` gives {plural(count, 'expression')} for {parameter}, but `by` has {by_count}"
            reader.reject("by_input", what, "list one for each column of `by`, with commas")
        if parameter in options.reference:
            what = f"`by_input` and `reference` both name {parameter}: a reference has no slices"
            reader.reject("by_input", what, "remove it from one of them")
    if options.lookback and by_count > 1:
        what = "`lookback` needs slices that follow one another, but `by` has several columns"
        reader.reject("lookback", what, "let `by` be one column of type date, int or long")


def _read_sort(reader: OptionReader) -> tuple[str, ...]:
    columns = reader.texts("sort", "a column")
    for text in columns:
        if not _SORT.match(text):
            reader.reject("sort", f"{quote_value(text)} is not an order", 'write a column, or "amount desc"')
    return columns


def _read_properties(reader: OptionReader) -> tuple[tuple[str, str], ...]:
    pairs = reader.pairs("properties", (str, int, float, bool), '"value"')
    return tuple((key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in pairs)


def _read_deadline(reader: OptionReader, value: Any) -> str | None:
    if value is None:
        return None
    try:
        parse_deadline(value)
    except Mistake as mistake:
        reader.reject("deadline", mistake.what, mistake.fix)
        return None
    return str(value)
