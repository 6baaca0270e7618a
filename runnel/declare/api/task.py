"""`@rn.task`: declare that a function makes a table."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from runnel.declare.model.flow import Check
from runnel.declare.model.source_location import SourceLocation
from runnel.declare.model.task_draft import TaskDraft
from runnel.declare.options import function_signature, task_options
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import Registry, current_registry
from runnel.errors import Mistake, did_you_mean
from runnel.names import TableName, quote_value

F = TypeVar("F", bound=Callable[..., Any])
ATTRIBUTE = "__runnel_task__"
_TEXTS = str | Sequence[str] | None


def task(
    table: str,
    inputs: Mapping[str, str] | None = None,
    *,
    by: _TEXTS = None,
    by_input: Mapping[str, str] | None = None,
    reference: _TEXTS = None,
    lookback: Mapping[str, int] | None = None,
    trust_by: bool | None = None,
    rowwise: bool | None = None,
    key: _TEXTS = None,
    volatile: bool | None = None,
    stream: _TEXTS = None,
    trigger: str | None = None,
    watermark: tuple[str, str] | Mapping[str, tuple[str, str]] | None = None,
    output: str | None = None,
    schema: str | None = None,
    partition: _TEXTS = None,
    sort: _TEXTS = None,
    properties: Mapping[str, str] | None = None,
    tags: _TEXTS = None,
    owner: str | None = None,
    retries: int | None = None,
    retry_on: _TEXTS = None,
    timeout: str | float | None = None,
    deadline: str | None = None,
    checks: Sequence[Check | str] | None = None,
    **unknown: object,
) -> Callable[[F], F]:
    """Declare that a function makes the table `layer.name`; the function stays callable as before.

    Positional parameters of the function are tables: `orders` means the only table of the project whose name ends in
    `.orders`; `inputs={"o": "ods.orders"}` names it explicitly. Keyword-only parameters are parameters, with defaults.
    A parameter named `spark` gets the session. The function returns a Spark DataFrame.

    - `by`: columns of the output that name its slices; `by_input` gives the expression for an input that lacks them,
      `reference` names inputs whose changes alone recompute nothing, `lookback` how many earlier slices a slice reads.
      `trust_by` promises that each slice depends on its own rows only, if Runnel can't prove it.
    - `rowwise`: each output row comes from one input row. `key`: the columns that identify a row.
    - `volatile`: never skipped.
    - `stream`: the inputs that are read as streams; `watermark=("ts", "10 minutes")` is how late their rows may be,
      `output="update"` makes a row replace the one with its `key`, `trigger` is the least time between batches.
    - `schema`, `partition`, `sort`, `properties`: of the table. `tags`, `owner`: for people and selections.
    - `retries`, `retry_on="RuntimeError"` (exceptions that are retried, too), `timeout="10 minutes"`,
      `deadline="06:30 Asia/Shanghai"`: of its runs.
    - `checks`: claims about the table, such as `rn.not_null("order_id")` or `"amount >= 0"`.
    """
    registry = current_registry()
    place = registry.caller_location()
    values = {
        "by": by, "by_input": by_input, "reference": reference, "lookback": lookback, "trust_by": trust_by,
        "rowwise": rowwise, "key": key, "volatile": volatile, "stream": stream, "trigger": trigger,
        "watermark": watermark, "output": output,
        "schema": schema, "partition": partition, "sort": sort, "properties": properties, "tags": tags,
        "owner": owner, "retries": retries, "retry_on": retry_on, "timeout": timeout,
        "deadline": deadline, "checks": checks,
    }  # fmt: skip
    if callable(table):
        fix = 'write @rn.task("layer.name") with the table that it makes'
        registry.reject(
            "DECLARE_TASK", f"the task on {quote_value(_function_name(table))} has no table", at=place, fix=fix
        )
        return table  # `@rn.task` without parentheses: `table` is the function

    def declare(function: F) -> F:
        _declare_task(registry, place, table, function, inputs, values, list(unknown))
        return function

    return declare


def _declare_task(
    registry: Registry,
    place: SourceLocation,
    table: str,
    function: Callable[..., Any],
    inputs: Any,
    values: dict[str, Any],
    unknown: list[str],
) -> None:
    def note(mistake: Mistake) -> None:
        registry.report_mistake(mistake, place)

    try:
        name = TableName.parse(table)
    except Mistake as mistake:
        registry.claim(table)
        note(mistake)
        return
    owner = f"task `{table}`"
    parsed_signature = function_signature.read(function, owner, note)
    reader = OptionReader(owner, values, lambda _, mistake: note(mistake))
    reader.reject_unknown(unknown, ["inputs", *task_options.OPTION_NAMES])
    draft = TaskDraft(
        table=name,
        name=_function_name(function),
        place=place,
        inputs=_read_inputs(reader, inputs, parsed_signature.tables),
        params=parsed_signature.params,
        function=function,
        takes_spark=parsed_signature.takes_spark,
        takes_scheduled_at=parsed_signature.takes_scheduled_at,
        options=task_options.read(reader, values, parsed_signature.tables),
        checks=task_options.read_checks(reader, values["checks"]),
        description=inspect.cleandoc(function.__doc__ or ""),
    )
    if inspect.isfunction(function):
        setattr(function, ATTRIBUTE, draft)
    registry.add(draft)


def _read_inputs(reader: OptionReader, inputs: Any, parameters: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    named_tables = dict(
        OptionReader(reader.owner, {"inputs": inputs}, reader.report_mistake).pairs("inputs", str, '"ods.orders"')
    )
    for name in named_tables:
        if name not in parameters:
            what = f"`inputs` names {quote_value(name)}, which is not a positional parameter of its function"
            fix = f"its tables: {', '.join(parameters) or 'none'}"
            reader.reject("inputs", what + did_you_mean(name, parameters), fix)
    return tuple((parameter, named_tables.get(parameter)) for parameter in parameters)


def _function_name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
