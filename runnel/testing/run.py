"""Run a task on literal rows: `rn.testing.run(seller_day, orders=[{...}], min_amount=1).rows`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.declare.loading.parameter_values import value_of
from runnel.declare.model.flow import Task
from runnel.declare.model.task_draft import Draft
from runnel.declare.registry import collecting
from runnel.declare.settings import find_root
from runnel.errors import Mistake, listed, nearest
from runnel.names import TableName
from runnel.testing.declared_schemas import columns_of, table_of
from runnel.testing.literal_rows import Row, frame_of, rows_of
from runnel.testing.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Tested:
    """What a task made of the rows that it was given. `frame` can be an input of another test."""

    task: Task
    frame: "DataFrame" = field(repr=False)
    inputs: "Mapping[TableName, DataFrame]" = field(repr=False, default_factory=dict)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries of Python values (Decimal, date, ...), in the order that Spark gave."""
        return rows_of(self.frame)

    @cached_property
    def plain(self) -> list[dict[str, Any]]:
        """Return the rows as JSON holds them: decimals and times are text, which is easy to compare with."""
        from runnel.query.arrow_types import json_value

        return [{name: _plain(value, json_value) for name, value in row.items()} for row in self.rows]

    @property
    def columns(self) -> dict[str, str]:
        """Return the columns with their types as Spark writes them."""
        return {column.name: column.dataType.simpleString() for column in self.frame.schema.fields}

    @cached_property
    def failed(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows that fail a check, by the text of the check; checks that hold are left out.

        `fresh` is not tried, and `references` only where the test gives the other table as an input.
        """
        from runnel.testing.failing_checks import failed

        return failed(self.task, self.frame, self.inputs)


def run(task: "Callable[..., Any] | str | Path", /, **given: "Sequence[Row] | DataFrame | Tested | Any") -> Tested:
    """Run a task on rows given by the names of its inputs; other names set its parameters.

    `task` is a decorated function, or the path of an SQL task. Rows are dictionaries: what the source or the task of
    a table declares is how they are typed, so that text such as "2026-01-02" becomes a date. An input may also be
    a Spark frame, or what another test made.
    """
    from runnel.run.task.build_frame import build

    draft, file = _draft(task)
    inputs = _inputs(draft, file)
    _refuse(draft, list(inputs), given)
    values = {name: value for name, value in given.items() if name not in inputs}
    linked = Task(
        table=draft.table,
        name=draft.name,
        place=draft.place,
        inputs=tuple((one.parameter, one.table) for one in inputs.values()),
        params=tuple((param.name, value_of(param, values, f"task `{draft.shown}`")) for param in draft.params),
        function=draft.function,
        sql=draft.sql,
        takes_spark=draft.takes_spark,
        options=draft.options,
        checks=draft.checks,
        description=draft.description,
    )
    frames = {one.table: _frame(name, given[name], one.meant, file) for name, one in inputs.items()}
    return Tested(linked, build(linked, frames, session(), Path.cwd()), frames)


def _draft(task: "Callable[..., Any] | str | Path") -> tuple[Draft, Path | None]:
    """Return a declared task, and the file that declares it."""
    if isinstance(task, str | Path):
        return _sql_draft(Path(task)), Path(task)
    found = getattr(task, "__runnel_task__", None)
    if not isinstance(found, Draft):
        what = f"`{getattr(task, '__name__', task)}` is no task"
        raise Mistake("TEST_NO_TASK", what, fix="pass a function under @rn.task, or the path of an SQL task")
    file = inspect.getsourcefile(inspect.unwrap(task))
    return found, Path(file) if file else None


def _sql_draft(path: Path) -> Draft:
    from runnel.declare.loading import sql_task

    if not path.is_file():
        near = nearest(path.name, [found.name for found in path.parent.glob("*.sql")])
        what = f"there is no SQL task {path}" + (f"; close: `{near}`" if near else "")
        raise Mistake("TEST_NO_TASK", what, fix="give its path, such as flows/dws/day.sql")
    root = find_root(path.absolute().parent)
    with collecting(str(root)) as registry:
        sql_task.declare(registry, path.absolute().relative_to(root).as_posix(), path.read_text(encoding="utf-8-sig"))
    if registry.mistakes:
        raise registry.mistakes[0]
    return registry.tasks[0]


@dataclass(frozen=True)
class _Input:
    """An input of a task: `meant` is the table as it is declared, `table` what it is called in this test."""

    parameter: str
    meant: TableName
    table: TableName


def _inputs(draft: Draft, file: Path | None) -> dict[str, _Input]:
    """Return the inputs by the names under which a test gives them.

    That is the parameter's name. In SQL it is the last part of the table's name, or all of it where two tables share
    that part. Two parameters that mean one table get rows of their own.
    """
    last = [parameter.rpartition(".")[2] for parameter, _ in draft.inputs]
    found: dict[str, _Input] = {}
    for (parameter, named), short in zip(draft.inputs, last, strict=True):
        name = short if draft.sql is not None and last.count(short) == 1 else parameter
        meant = table_of(named or parameter, draft.table, file)
        is_taken = any(meant == other.meant for other in found.values())
        found[name] = _Input(parameter, meant, TableName("given", parameter) if is_taken else meant)
    return found


def _refuse(draft: Draft, names: Sequence[str], given: Mapping[str, Any]) -> None:
    known = [*names, *(param.name for param in draft.params)]
    for name in given:
        if name not in known:
            close = nearest(name, known)
            what = f"task `{draft.shown}` has no input or parameter `{name}`" + (f"; close: `{close}`" if close else "")
            raise Mistake("TEST_UNKNOWN_NAME", what, fix=f"it takes {listed(known)}")
    missing = [name for name in names if name not in given]
    if missing:
        what = f"task `{draft.shown}` reads {listed(names)}, but the test gives no {listed(missing)}"
        raise Mistake("TEST_INPUT_MISSING", what, fix=f"pass {missing[0]}=[{{...}}], or [] for no rows")


def _frame(name: str, given: Any, table: TableName, file: Path | None) -> "DataFrame":
    from pyspark.sql import DataFrame

    if isinstance(given, Tested):
        return given.frame
    if isinstance(given, DataFrame):
        return given
    if not isinstance(given, list | tuple):
        what = f"`{name}` is given as a value of type {type(given).__name__}"
        raise Mistake("TEST_ROWS", what, fix=f"pass a list of dictionaries, {name}=[{{...}}], or a Spark frame")
    for row in given:
        if not isinstance(row, Mapping):
            fix = f'write rows as dictionaries: {name}=[{{"order_id": 1}}]'
            raise Mistake("TEST_ROWS", f"{row!r} is no row of `{name}`", fix=fix)
    return frame_of(session(), name, given, columns_of(table, file))


def _plain(value: Any, of_one: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {_plain(key, of_one): _plain(each, of_one) for key, each in value.items()}
    return [_plain(each, of_one) for each in value] if isinstance(value, list) else of_one(value)
