"""Let the SQL of a task read views instead of tables, and keep the names by which it qualifies columns.

Pure: text in, text out. `orders.amount` and `ods.orders.amount` mean the column of `ods.orders`, as in Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from runnel.declare.sql.task_sql import TableReference, find_references, parse_query
from runnel.names import TableName


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


def replace_tables(sql: str, views: Mapping[TableName, str]) -> str:
    """Return the text with these tables replaced by views; all else keeps its meaning.

    >>> replace_tables("select a.x /* ods.a */, ods.a.y from ods.a", {TableName("ods", "a"): "view_1"})
    'select a.x /* ods.a */, `a`.y from view_1 AS `a`'
    """
    references = [reference for reference in find_references(sql) if _find_view(reference, views)]
    aliases = _choose_aliases(references)
    edits = [_replace_reference(reference, views, aliases) for reference in references]
    edits += _replace_qualifiers(sql, references, aliases)
    pieces: list[str] = []
    end = 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        pieces += [sql[end : edit.start], edit.text]
        end = edit.end + 1
    return "".join([*pieces, sql[end:]])


def _find_view(reference: TableReference, views: Mapping[TableName, str]) -> str | None:
    return views.get(TableName.parse_unchecked(reference.name)) if len(reference.parts) == 2 else None


def _choose_aliases(references: Sequence[TableReference]) -> dict[str, str]:
    """Return the alias of each table: its name, or its full name if the query reads another table of that name."""
    full_names = {reference.name for reference in references if reference.is_unaliased}
    short_names = [_short_name(name) for name in full_names]
    return {
        name: f"`{_short_name(name) if short_names.count(_short_name(name)) == 1 else name}`" for name in full_names
    }


def _replace_reference(reference: TableReference, views: Mapping[TableName, str], aliases: Mapping[str, str]) -> _Edit:
    view = _find_view(reference, views)
    alias = f" AS {aliases[reference.name]}" if reference.is_unaliased else ""
    return _Edit(reference.start, reference.end, f"{view}{alias}")


def _replace_qualifiers(sql: str, references: Sequence[TableReference], aliases: Mapping[str, str]) -> Iterator[_Edit]:
    """Yield an edit for each column that is qualified by a table's full name, or by a name that two tables have."""
    names_by_start = {reference.start: reference.name for reference in references if reference.is_unaliased}
    for column in parse_query(sql).find_all(exp.Column):
        parts = column.parts
        full_name = ".".join(part.name for part in parts[:2]).lower()
        if len(parts) > 2 and full_name in aliases and not _is_alias_in_scope(column, parts[0].name.lower()):
            yield _Edit(parts[0].meta["start"], parts[1].meta["end"], aliases[full_name])
        elif len(parts) > 1 and "start" in parts[0].meta:
            table = _find_table_in_scope(column, parts[0].name.lower(), names_by_start)
            if table is not None and aliases[table] != f"`{_short_name(table)}`":
                yield _Edit(parts[0].meta["start"], parts[0].meta["end"], aliases[table])


def _is_alias_in_scope(column: exp.Column, name: str) -> bool:
    """Return whether a table in a query around the column has this alias, so that it is no layer."""
    return any(table.alias.lower() == name for table in _iter_tables_in_scope(column))


def _find_table_in_scope(column: exp.Column, name: str, names_by_start: Mapping[int, str]) -> str | None:
    """Return the full name of the nearest table without an alias that has this name."""
    for table in _iter_tables_in_scope(column):
        if table.alias_or_name.lower() == name:
            return names_by_start.get(table.parts[0].meta["start"]) if isinstance(table, exp.Table) else None
    return None


def _iter_tables_in_scope(column: exp.Column) -> Iterator[exp.Expr]:
    """Yield what the queries around a column read, the innermost query first."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        clauses = [select.args.get("from_"), *(select.args.get("joins") or ())]
        yield from (clause.this for clause in clauses if clause is not None)
        select = select.find_ancestor(exp.Select)


def _short_name(full_name: str) -> str:
    return full_name.rpartition(".")[2]
