"""Declare a SQL file below flows/ as a task: flows/dws/seller_day.sql makes dws.seller_day."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from runnel.declare.model.source_location import SourceLocation
from runnel.declare.model.task_draft import Param, TaskDraft
from runnel.declare.options import task_options
from runnel.declare.options.option_reader import OptionReader
from runnel.declare.registry import Registry
from runnel.declare.sql.header_comment import HeaderComment, find_header_end, parse_header_comment
from runnel.errors import Mistake, did_you_mean
from runnel.names import TableName

OPTION_NAMES = ("table", "params", *task_options.OPTION_NAMES)
_AT_LINE = re.compile(r"line (\d+)")


def declare(registry: Registry, file: str, text: str) -> None:
    """Declare the task in a SQL file; `file` is relative to the project's folder, below flows/."""
    stem = PurePosixPath(file).stem
    try:
        comments = parse_header_comment(text)
        table = _read_table_name(file, comments)
        registry.claim(str(table))
        draft = _build_draft(registry, file, text, comments, table)
    except Mistake as mistake:
        registry.claim(stem)
        line = _AT_LINE.match(mistake.at or "")
        mistake.at = f"{file}:{line[1] if line else 1}" if mistake.at is None or line else mistake.at
        registry.report_mistake(mistake)
        return
    registry.add(draft)


def _build_draft(registry: Registry, file: str, text: str, comments: HeaderComment, table: TableName) -> TaskDraft:
    from runnel.declare.sql.task_sql import find_parameters, find_references

    def note(name: str, mistake: Mistake) -> None:
        registry.report_mistake(mistake, SourceLocation(file, comments.lines.get(name, 1)))

    reader = OptionReader(f"task `{table}`", comments.options, note)
    reader.reject_unknown([name for name in comments.options if name not in OPTION_NAMES], OPTION_NAMES)
    params = reader.pairs("params", object, "0")
    inputs = tuple(dict.fromkeys(reference.name for reference in find_references(text)))
    _refuse_unset_params(reader, find_parameters(text), [name for name, _ in params])
    return TaskDraft(
        table=table,
        name=table.name,
        place=SourceLocation(file, find_first_line(text)),
        inputs=tuple((name, name) for name in inputs),
        params=tuple(Param(name, default) for name, default in params),
        sql=text,
        options=task_options.read(reader, comments.options, inputs),
        checks=tuple(
            replace(check, place=SourceLocation(file, comments.lines.get("checks", 1)))
            for check in task_options.read_checks(reader, comments.options.get("checks"))
        ),
        description=comments.description,
        option_places=tuple((name, SourceLocation(file, line)) for name, line in comments.lines.items()),
    )


def find_first_line(text: str) -> int:
    """Return the line on which the SQL starts, after the comments.

    >>> find_first_line("/* sums */ select 1")
    1
    """
    position = find_header_end(text)
    position += len(text[position:]) - len(text[position:].lstrip())
    return text.count("\n", 0, position) + 1


def _read_table_name(file: str, comments: HeaderComment) -> TableName:
    table_option: Any = comments.options.get("table")
    if table_option is not None:
        try:
            return TableName.parse(table_option)
        except Mistake as mistake:
            mistake.at = f"line {comments.lines.get('table', 1)}"
            raise
    folders = PurePosixPath(file).parts[1:-1]
    stem = PurePosixPath(file).stem
    if not folders:
        what = f"{file} is not in a folder that names its table's layer"
        layer, _, name = stem.rpartition(".") if stem.count(".") == 1 else ("dws", "", stem)
        fix = f'move it to flows/{layer}/{name}.sql, or write /* runnel table = "{layer}.{name}" */ at its top'
        raise Mistake("DECLARE_SQL_TABLE", what, fix=fix)
    return TableName.parse(f"{folders[0]}.{stem}")


def _refuse_unset_params(reader: OptionReader, used_names: Sequence[str], set_names: Sequence[str]) -> None:
    for name in used_names:
        if name not in set_names:
            what = f"the SQL uses `:{name}`, which has no default" + did_you_mean(name, set_names)
            reader.reject("params", what, f"write params = {{ {name} = ... }} in its options")
