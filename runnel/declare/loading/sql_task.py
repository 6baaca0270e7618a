"""A file of SQL below flows/ as a task: flows/dws/seller_day.sql makes dws.seller_day."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from runnel.declare.model.source_location import Place
from runnel.declare.model.task_draft import Draft, Param
from runnel.declare.options import task_options
from runnel.declare.options.option_reader import Given
from runnel.declare.registry import Registry
from runnel.declare.sql.header_comment import Comments, comments_in, end_of_comments
from runnel.errors import Mistake, nearest
from runnel.names import TableName

KNOWN = ("table", "params", *task_options.KNOWN)
_AT_LINE = re.compile(r"line (\d+)")


def declare(registry: Registry, file: str, text: str) -> None:
    """Declare the task in a SQL file; `file` is relative to the project's folder, below flows/."""
    stem = PurePosixPath(file).stem
    try:
        comments = comments_in(text)
        table = _table(file, comments)
        registry.claim(str(table))
        draft = _draft(registry, file, text, comments, table)
    except Mistake as mistake:
        registry.claim(stem)
        line = _AT_LINE.match(mistake.at or "")
        mistake.at = f"{file}:{line[1] if line else 1}" if mistake.at is None or line else mistake.at
        registry.note(mistake)
        return
    registry.add(draft)


def _draft(registry: Registry, file: str, text: str, comments: Comments, table: TableName) -> Draft:
    from runnel.declare.sql.task_sql import parameters_in, references_in

    def note(name: str, mistake: Mistake) -> None:
        registry.note(mistake, Place(file, comments.lines.get(name, 1)))

    given = Given(f"task `{table}`", comments.options, note)
    given.unknown([name for name in comments.options if name not in KNOWN], KNOWN)
    params = given.pairs("params", object, "0")
    inputs = tuple(dict.fromkeys(reference.name for reference in references_in(text)))
    _refuse_unset(given, parameters_in(text), [name for name, _ in params])
    return Draft(
        table=table,
        name=table.name,
        place=Place(file, first_line(text)),
        inputs=tuple((name, name) for name in inputs),
        params=tuple(Param(name, default) for name, default in params),
        sql=text,
        options=task_options.read(given, comments.options, inputs),
        checks=tuple(
            replace(check, place=Place(file, comments.lines.get("checks", 1)))
            for check in task_options.checks(given, comments.options.get("checks"))
        ),
        description=comments.description,
    )


def first_line(text: str) -> int:
    """Return the line on which the SQL starts, after the comments.

    >>> first_line("/* sums */ select 1")
    1
    """
    at = end_of_comments(text)
    at += len(text[at:]) - len(text[at:].lstrip())
    return text.count("\n", 0, at) + 1


def _table(file: str, comments: Comments) -> TableName:
    named: Any = comments.options.get("table")
    if named is not None:
        try:
            return TableName.parse(named)
        except Mistake as mistake:
            mistake.at = f"line {comments.lines.get('table', 1)}"
            raise
    folders = PurePosixPath(file).parts[1:-1]
    stem = PurePosixPath(file).stem
    if not folders:
        what = f"{file} does not lie in a folder that names its table's layer"
        fix = f'move it to flows/dws/{stem}.sql, or write /* runnel table = "dws.{stem}" */ at its top'
        raise Mistake("DECLARE_SQL_TABLE", what, fix=fix)
    return TableName.parse(f"{folders[0]}.{stem}")


def _refuse_unset(given: Given, used: Sequence[str], set_: Sequence[str]) -> None:
    for name in used:
        if name not in set_:
            close = nearest(name, set_)
            what = f"the SQL uses `:{name}`, which has no default" + (f"; close: `{close}`" if close else "")
            given.wrong("params", what, f"write params = {{ {name} = ... }} in its options")
