"""Run a task on literal rows: `rn.testing.run(seller_day, orders=[{...}], min_amount=1).rows`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.declare.loading.parameter_values import resolve_value
from runnel.declare.model.flow import Task
from runnel.declare.model.task_draft import TaskDraft
from runnel.declare.options.function_signature import SCHEDULED_PARAM
from runnel.declare.registry import collect_declarations
from runnel.declare.settings import find_root
from runnel.errors import Mistake, did_you_mean, join_names
from runnel.names import TableName
from runnel.testing.declared_schemas import find_declared_columns, resolve_input_table
from runnel.testing.literal_rows import Row, collect_rows, create_frame
from runnel.testing.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class TaskTestResult:
    """The result of a task for the rows of a test. `frame` can be an input of another test."""

    task: Task
    frame: "DataFrame" = field(repr=False)
    inputs: "Mapping[TableName, DataFrame]" = field(repr=False, default_factory=dict)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries of Python values (Decimal, date, ...), in the order that Spark returned."""
        return collect_rows(self.frame)

    @cached_property
    def plain(self) -> list[dict[str, Any]]:
        """Return the rows as JSON values: decimals and times are text, which is easy to compare."""
        from runnel.query.arrow_types import to_json_value

        return [{name: _to_plain(value, to_json_value) for name, value in row.items()} for row in self.rows]

    @property
    def columns(self) -> dict[str, str]:
        """Return the columns with their types as Spark writes them."""
        return {column.name: column.dataType.simpleString() for column in self.frame.schema.fields}

    @cached_property
    def failed(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows that fail each check, by the check's text; checks that pass are left out.

        `fresh` is not checked, and `references` only if the test provides the other table as an input.
        """
        from runnel.testing.failing_checks import find_failing_rows

        return find_failing_rows(self.task, self.frame, self.inputs)


def run(
    task: "Callable[..., Any] | str | Path", /, **arguments: "Sequence[Row] | DataFrame | TaskTestResult | Any"
) -> TaskTestResult:
    """Run a task on rows passed by the names of its inputs; other names set its parameters, and `scheduled_at`.

    `task` is a decorated function, or the path of an SQL task. Rows are dictionaries, converted to the types that the
    table's source or task declares, so that text such as "2026-01-02" becomes a date. An input may also be a Spark
    frame, or the result of another test.
    """
    from runnel.run.task.build_frame import build_frame

    draft, file = _find_draft(task)
    inputs = _resolve_inputs(draft, file)
    _check_arguments(draft, list(inputs), arguments)
    parameter_values = {name: value for name, value in arguments.items() if name not in inputs}
    linked_task = Task(
        table=draft.table,
        name=draft.name,
        place=draft.place,
        inputs=tuple((task_input.parameter, task_input.table) for task_input in inputs.values()),
        params=tuple(
            (param.name, resolve_value(param, parameter_values, f"task `{draft.display_name}`"))
            for param in draft.params
        ),
        function=draft.function,
        sql=draft.sql,
        takes_spark=draft.takes_spark,
        takes_scheduled_at=draft.takes_scheduled_at,
        options=draft.options,
        checks=draft.checks,
        description=draft.description,
        option_places=draft.option_places,
    )
    frames = {
        task_input.table: _build_input_frame(name, arguments[name], task_input.declared_table, file)
        for name, task_input in inputs.items()
    }
    scheduled_at: Any = arguments.get(SCHEDULED_PARAM) if draft.takes_scheduled_at else None
    frame = build_frame(linked_task, frames, session(), Path.cwd(), scheduled_at=scheduled_at)
    return TaskTestResult(linked_task, frame, frames)


def _find_draft(task: "Callable[..., Any] | str | Path") -> tuple[TaskDraft, Path | None]:
    """Return a declared task, and the file that declares it."""
    if isinstance(task, str | Path):
        return _load_sql_draft(Path(task)), Path(task)
    draft = getattr(task, "__runnel_task__", None)
    if not isinstance(draft, TaskDraft):
        what = f"`{getattr(task, '__name__', task)}` is not a task"
        raise Mistake("TEST_NO_TASK", what, fix="pass a function under @rn.task, or the path of an SQL task")
    file = inspect.getsourcefile(inspect.unwrap(task))
    return draft, Path(file) if file else None


def _load_sql_draft(path: Path) -> TaskDraft:
    from runnel.declare.loading import sql_task

    if not path.is_file():
        sibling_names = [sibling.name for sibling in path.parent.glob("*.sql")]
        what = f"there is no SQL task {path}" + did_you_mean(path.name, sibling_names)
        raise Mistake("TEST_NO_TASK", what, fix="pass its path, such as flows/dws/day.sql")
    root = find_root(path.absolute().parent)
    with collect_declarations(str(root)) as registry:
        sql_task.declare(registry, path.absolute().relative_to(root).as_posix(), path.read_text(encoding="utf-8-sig"))
    if registry.mistakes:
        raise registry.mistakes[0]
    return registry.tasks[0]


@dataclass(frozen=True)
class _TestInput:
    """An input of a task: `declared_table` is the table as declared, `table` its name in this test."""

    parameter: str
    declared_table: TableName
    table: TableName


def _resolve_inputs(draft: TaskDraft, file: Path | None) -> dict[str, _TestInput]:
    """Return the inputs by the names under which a test passes them.

    That is the parameter's name. In SQL it is the last part of the table's name, or the full name if two tables share
    that part. Two parameters that refer to the same table get separate rows.
    """
    short_names = [parameter.rpartition(".")[2] for parameter, _ in draft.inputs]
    inputs_by_name: dict[str, _TestInput] = {}
    for (parameter, table_text), short_name in zip(draft.inputs, short_names, strict=True):
        name = short_name if draft.sql is not None and short_names.count(short_name) == 1 else parameter
        declared_table = resolve_input_table(table_text or parameter, draft.table, file)
        is_repeated = any(declared_table == other_input.declared_table for other_input in inputs_by_name.values())
        inputs_by_name[name] = _TestInput(
            parameter, declared_table, TableName("given", parameter) if is_repeated else declared_table
        )
    return inputs_by_name


def _check_arguments(draft: TaskDraft, names: Sequence[str], arguments: Mapping[str, Any]) -> None:
    known_names = [*names, *(param.name for param in draft.params)]
    known_names += [SCHEDULED_PARAM] if draft.takes_scheduled_at else []
    for name in arguments:
        if name not in known_names:
            what = f"task `{draft.display_name}` has no input or parameter `{name}`" + did_you_mean(name, known_names)
            raise Mistake("TEST_UNKNOWN_NAME", what, fix=f"it takes {join_names(known_names)}")
    missing = [name for name in names if name not in arguments]
    if missing:
        what = f"task `{draft.display_name}` reads {join_names(names)}, but the test gives no {join_names(missing)}"
        raise Mistake("TEST_INPUT_MISSING", what, fix=f"pass {missing[0]}=[{{...}}], or [] for no rows")


def _build_input_frame(name: str, argument: Any, table: TableName, file: Path | None) -> "DataFrame":
    from pyspark.sql import DataFrame

    if isinstance(argument, TaskTestResult):
        return argument.frame
    if isinstance(argument, DataFrame):
        return argument
    if not isinstance(argument, list | tuple):
        what = f"`{name}` is given as a value of type {type(argument).__name__}"
        raise Mistake("TEST_ROWS", what, fix=f"pass a list of dictionaries, {name}=[{{...}}], or a Spark frame")
    for row in argument:
        if not isinstance(row, Mapping):
            fix = f'write rows as dictionaries: {name}=[{{"order_id": 1}}]'
            raise Mistake("TEST_ROWS", f"{row!r} is not a row of `{name}`", fix=fix)
    return create_frame(session(), name, argument, find_declared_columns(table, file))


def _to_plain(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {_to_plain(key, convert): _to_plain(item, convert) for key, item in value.items()}
    return [_to_plain(item, convert) for item in value] if isinstance(value, list) else convert(value)
