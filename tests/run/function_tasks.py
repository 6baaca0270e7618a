"""Tasks made of plain functions, and the line of a function that a test means."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runnel.declare.model.flow import Task, TaskOptions
from runnel.declare.model.source_location import SourceLocation
from runnel.names import TableName

ROOT = Path(__file__).parent
MARK = "# <- here"
ORDERS, ITEMS = TableName("ods", "orders"), TableName("ods", "items")


def task_of(function: Callable[..., Any], options: TaskOptions | None = None, **parts: Any) -> Task:
    """Return the task that a function is: its parameters `orders` and `items` are tables, `spark` the session."""
    names = list(inspect.signature(function).parameters)
    inputs = tuple((name, TableName("ods", name)) for name in names if name in ("orders", "items"))
    place = SourceLocation(_file_of(function), inspect.getsourcelines(function)[1])
    given: dict[str, Any] = {
        "inputs": inputs,
        "takes_spark": "spark" in names,
        "options": options or TaskOptions(),
    } | parts
    return Task(TableName("dws", "made"), function.__name__, place, function=function, **given)


def marked(function: Callable[..., Any]) -> str:
    """Return `file:line` of the marked line of a function, or of its first."""
    lines, start = inspect.getsourcelines(function)
    offset = next((number for number, line in enumerate(lines) if MARK in line), 0)
    return f"{_file_of(function)}:{start + offset}"


def _file_of(function: Callable[..., Any]) -> str:
    return Path(inspect.getsourcefile(function) or "").relative_to(ROOT).as_posix()
