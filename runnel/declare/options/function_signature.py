"""Read the parameters of a task's function: positional ones are tables, keyword-only ones are parameters."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runnel.declare.model.task_draft import Param
from runnel.errors import Mistake

SESSION_PARAM = "spark"
SCHEDULED_PARAM = "scheduled_at"


@dataclass(frozen=True)
class FunctionSignature:
    """The tables and parameters of a function, and whether it takes the Spark session and the scheduled time."""

    tables: tuple[str, ...]
    params: tuple[Param, ...]
    takes_spark: bool
    takes_scheduled_at: bool = False


def read(function: Callable[..., Any], owner: str, report: Callable[[Mistake], None]) -> FunctionSignature:
    """Read the signature of a function; report and leave out what a task can't have."""
    problem = _describe_invalid_task(function)
    if problem:
        report(Mistake("DECLARE_TASK", f"{owner}: {problem}", fix="write a `def` that returns a frame"))
        return FunctionSignature((), (), False)
    tables: list[str] = []
    params: list[Param] = []
    takes_spark = takes_scheduled_at = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == SESSION_PARAM and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            takes_spark = True
        elif parameter.name == SCHEDULED_PARAM and parameter.kind == parameter.KEYWORD_ONLY:
            takes_scheduled_at = True
        elif parameter.kind == parameter.KEYWORD_ONLY:
            params.append(Param(parameter.name, parameter.default, parameter.annotation))
        elif table_problem := _describe_invalid_table(parameter):
            what, fix = table_problem
            report(Mistake("DECLARE_TASK", f"{owner}: {what}", fix=fix))
        else:
            tables.append(parameter.name)
    return FunctionSignature(tuple(tables), tuple(params), takes_spark, takes_scheduled_at)


def _describe_invalid_task(function: object) -> str | None:
    if not inspect.isfunction(function):
        return f"it must decorate a function, not a {'class' if inspect.isclass(function) else type(function).__name__}"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"`{function.__name__}` is asynchronous, which a task can't be"
    if inspect.isgeneratorfunction(function):
        return f"`{function.__name__}` yields, but a task returns one frame"
    return None


def _describe_invalid_table(parameter: inspect.Parameter) -> tuple[str, str] | None:
    if parameter.kind == parameter.VAR_POSITIONAL:
        return f"`*{parameter.name}` does not say which tables it reads", "name each table as a parameter of its own"
    if parameter.kind == parameter.VAR_KEYWORD:
        return f"`**{parameter.name}` does not say which parameters it has", "name each parameter, after a `*`"
    if parameter.default is not parameter.empty:
        what = f"`{parameter.name}` has a default, but it is in the position of a table"
        return what, f"write a `*` before it if it is a parameter: `*, {parameter.name}={parameter.default!r}`"
    return None
