"""A project as a value: its sources and its tasks, and the flow files that declare them."""

from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Any

SCHEMA = "id long, day date, ts timestamp, region string, customer long, amount long, price decimal(12,2)"
HEAD = "import runnel as rn\nfrom pyspark.sql import Window\nfrom pyspark.sql import functions as F\n\n"
BROKEN = 'raise ValueError("broken")'
GUARD = "coalesce(amount, 0) < 1000000"  # what a row breaks that makes a run fail
PARAMETERS = "abc"


@dataclass(frozen=True)
class Source:
    """A table of rows from outside. `form` is csv, jsonl or manual."""

    table: str
    form: str = "csv"
    removed: str = "keep"
    partition: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.table.partition(".")[2]

    def declaration(self) -> str:
        partition = f", partition={list(self.partition)}" if self.partition else ""
        if self.form == "manual":
            return f'rn.source("{self.table}", rn.manual(){partition})\n'
        files = f'rn.files("data/{self.name}/*.{self.form}", schema="{SCHEMA}", removed="{self.removed}")'
        return f'rn.source("{self.table}", {files}{partition})\n'


@dataclass(frozen=True)
class Task:
    """A task: the body of its function over the parameters a, b, c, or SQL in which these stand in braces.

    `columns` are those that it is known to have; `is_unique` tells that `id` is in no two rows. Columns that are
    `uncompared` follow a reference, whose changes alone change nothing. `CONST` in the text is `constant`.
    """

    table: str
    kind: str
    inputs: tuple[str, ...]
    body: str
    columns: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = ()
    is_sql: bool = False
    constant: int = 0
    is_unique: bool = False
    uncompared: tuple[str, ...] = ()
    aside: str | None = None  # drop or quarantine: of rows with a negative amount
    is_guarded: bool = False
    is_broken: bool = False

    @property
    def name(self) -> str:
        return self.table.partition(".")[2]

    @property
    def text(self) -> str:
        """Return the body with everything filled in but the names of SQL's tables."""
        return self.body.replace("CONST", str(self.constant))

    @property
    def named(self) -> dict[str, str]:
        """Return its inputs by parameter."""
        return dict(zip(PARAMETERS, self.inputs, strict=False))

    def python(self) -> str:
        options = {"inputs": self.named, **dict(self.options)}
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        checks = [f'rn.check("amount >= 0", on_fail="{self.aside}")'] if self.aside else []
        checks += [f'rn.check("{GUARD}")'] if self.is_guarded else []
        given += f", checks=[{', '.join(checks)}]" if checks else ""
        body = f"{BROKEN}\n{self.text}" if self.is_broken else self.text
        return f'@rn.task("{self.table}", {given})\ndef {self.name}({", ".join(self.named)}):\n{indent(body, "    ")}\n'

    def sql(self) -> str:
        options = dict(self.options)
        for name in ("by_input", "lookback"):
            if name in options:
                options[name] = {self.named[parameter]: value for parameter, value in options[name].items()}
        lines = [f"{name} = {_toml(value)}" for name, value in options.items()]
        checks = [f"between(amount, 0, 1000000000000, on_fail='{self.aside}')"] if self.aside else []
        checks += [GUARD] if self.is_guarded else []
        lines += [f"checks = {_toml(checks)}"] if checks else []
        text = self.text.format(**self.named)
        if self.is_broken:
            text = f"select *, no_such_column from ({text})"
        return "/* runnel\n" + "\n".join(lines) + f"\n*/\n{text}\n"


@dataclass(frozen=True)
class World:
    """What a project declares. Tasks are in an order in which they can be computed."""

    sources: tuple[Source, ...]
    tasks: tuple[Task, ...] = ()
    made: int = field(default=0, compare=False)  # how many tasks there ever were: each has a name of its own

    def files(self) -> dict[str, str]:
        """Return the flow files by path."""
        python = [task.python() for task in self.tasks if not task.is_sql]
        found = {"flows/flow.py": HEAD + "".join(source.declaration() for source in self.sources) + "\n\n".join(python)}
        found |= {f"flows/{t.table.replace('.', '/')}.sql": t.sql() for t in self.tasks if t.is_sql}
        return found

    def task(self, table: str) -> Task:
        return next(task for task in self.tasks if task.table == table)

    def source(self, table: str) -> Source:
        return next(source for source in self.sources if source.table == table)

    def having(self, changed: Task | Source) -> "World":
        """Return the world with a task or source of the same name replaced."""
        sources = tuple(changed if one.table == changed.table else one for one in self.sources)
        tasks = tuple(changed if one.table == changed.table else one for one in self.tasks)
        return replace(self, sources=sources, tasks=tasks)  # type: ignore[arg-type]

    def above(self, table: str) -> set[str]:
        """Return a table with all that it is made from."""
        found, waiting = set(), [table]
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                waiting += [name for task in self.tasks if task.table == at for name in task.inputs]
        return found

    def without(self, table: str) -> "World":
        return replace(self, tasks=tuple(task for task in self.tasks if task.table != table))

    def __str__(self) -> str:
        return "\n".join(f"--- {path}\n{text}" for path, text in self.files().items())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{name}" = {_toml(one)}' for name, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
