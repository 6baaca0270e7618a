"""Hold a task as declared, before its inputs and parameters are linked to tables and values."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

from runnel.declare.model.flow import Check, TaskOptions
from runnel.declare.model.source_location import SourceLocation
from runnel.names import TableName

NO_DEFAULT = Parameter.empty


@dataclass(frozen=True)
class Param:
    """A keyword parameter of a task. `annotation` is as the user wrote it: a type, text or nothing (`NO_DEFAULT`)."""

    name: str
    default: Any = NO_DEFAULT
    annotation: Any = NO_DEFAULT


@dataclass(frozen=True)
class TaskDraft:
    """A declared task. `inputs` are pairs: a parameter, and its table or None if the parameter names the table.

    `rn.task` stores it on the function as `__runnel_task__`.
    """

    table: TableName
    name: str
    place: SourceLocation
    inputs: tuple[tuple[str, str | None], ...] = ()
    params: tuple[Param, ...] = ()
    function: Callable[..., Any] | None = field(default=None, compare=False)
    sql: str | None = None
    takes_spark: bool = False
    takes_scheduled_at: bool = False
    options: TaskOptions = field(default_factory=TaskOptions)
    checks: tuple[Check, ...] = ()
    description: str = ""
    option_places: tuple[tuple[str, SourceLocation], ...] = field(default=(), compare=False)

    @property
    def display_name(self) -> str:
        """Return the name used in messages: the function's name if the table has the same name."""
        return self.name if self.name == self.table.name else str(self.table)
