"""Fit the columns of files to those of a table: which goes where, in which ways it may be stored, what is new.

Pure: schemas in, choices out. Whether the values allow a way is found out by `settle`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.types import IcebergType, NestedField, StringType

from runnel.connect.files.format_reader import Incoming
from runnel.connect.files.text_values import Try, guess, rule
from runnel.connect.iceberg_types import bare, called, castable, field_of, fits, known, wider
from runnel.connect.load.nested_values import Unfit, converts, grown, leaves_fit, new_fields, shape_fits
from runnel.errors import Mistake, listed, nearest
from runnel.internal_names import why_reserved
from runnel.lake.scan.duckdb_types import duckdb_type
from runnel.names import shown

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from runnel.declare.model.column_types import Column

ADD, IGNORE, STOP = "add", "ignore", "stop"
_TOO_LONG = r"(^|[\[:,])\s*-?([1-9][0-9]{19,}|9[3-9][0-9]{17}|92[3-9][0-9]{16}|922[4-9][0-9]{15})\s*([,\]}]|$)"


@dataclass(frozen=True)
class Choice:
    """A column to load: where it comes from, where it goes, and the ways to store it, the best first."""

    incoming: Incoming
    name: str
    tries: tuple[Try, ...]
    stored: NestedField | None = None  # the table's column, None for a new one
    required: bool = False
    doc: str | None = None

    @property
    def guessed(self) -> bool:
        """Tell whether nobody said its type."""
        return bool(self.incoming.guesses) and len(self.tries) > 1 and self.stored is None


def choose(
    columns: Sequence[Incoming], declared: Sequence["Column"], table: "Schema | None", on_new_column: str, where: str
) -> tuple[Choice, ...]:
    """Return what to do with each column of the files; `where` names them in errors."""
    if on_new_column not in (ADD, IGNORE, STOP):
        raise Mistake("LOAD_OPTION", f"on_new_column can't be {on_new_column!r}", fix="use add, ignore or stop")
    said = {column.name.lower(): field_of(column) for column in declared}
    chosen: list[Choice] = []
    unknown: list[str] = []
    for column in columns:
        stored, given = _field(table, column.name), said.get(column.name.lower())
        inside = _new_fields(column, stored or given) if on_new_column == STOP else []
        if stored is None and given is None and (table is not None or declared) and on_new_column != ADD:
            unknown.append(column.name)
        elif inside:
            unknown += inside
        else:
            chosen.append(_choice(column, stored, given, on_new_column, where))
    if unknown and on_new_column == STOP:
        raise _unknown(unknown, [*_names(table), *(column.name for column in declared)], where)
    _complete(columns, chosen, said, table, where)
    _refuse_reserved(chosen, where)
    order = {name: position for position, name in enumerate(said)}
    return tuple(sorted(chosen, key=lambda choice: order.get(choice.name.lower(), len(order))))


def _choice(
    column: Incoming, stored: NestedField | None, given: NestedField | None, on_new_column: str, where: str
) -> Choice:
    if stored is None and given is None:
        return Choice(column, column.name, _guesses(column))
    widens, drops = on_new_column == ADD, on_new_column == IGNORE
    if stored is None and given is not None:
        kind = _grown(column, given.field_type) if widens else given.field_type
        return Choice(column, given.name, _tries(column, (kind,), where, drops), None, given.required, given.doc)
    assert stored is not None
    kinds = (stored.field_type, *(wider(stored.field_type) if widens else ()))
    if given is not None:
        kinds = _both([grown(kind, given.field_type) for kind in kinds] if widens else kinds, given, where)
    kinds = tuple(_grown(column, kind) for kind in kinds) if widens else kinds
    return Choice(column, stored.name, _tries(column, kinds, where, drops), stored, stored.required)


def _grown(column: Incoming, kind: IcebergType) -> IcebergType:
    """Return a type with the fields inside it that only the files have."""
    for shape in (column.kind, *column.shapes):
        kind = grown(kind, shape) if shape is not None else kind
    return kind


def _new_fields(column: Incoming, field: NestedField | None) -> list[str]:
    """Return the fields inside a column that only the files have."""
    if field is None:
        return []
    shapes = [shape for shape in (column.kind, *column.shapes) if shape is not None]
    return [name for shape in shapes for name in new_fields(field.field_type, shape, field.name)]


def _both(kinds: Sequence[IcebergType], given: NestedField, where: str) -> tuple[IcebergType, ...]:
    """Return the kinds of a table's column that hold what the user declared."""
    found = tuple(kind for kind in kinds if fits(bare(given.field_type), bare(kind)))
    if not found:
        what = f"the schema says that `{given.name}` is {called(given.field_type)}, but in the table it is "
        raise Mistake("LOAD_TYPE", what + called(kinds[0]), at=where, fix="leave it out of the schema, or change it")
    return found


def _guesses(column: Incoming) -> tuple[Try, ...]:
    if column.kind is not None:
        found = _try(column, known(column.kind))
        assert found is not None
        return (found,)
    text = Try(StringType(), column.sql, column.sql)
    return (*(guess(column.sql, name, column.writing) for name in column.guesses), text)


def _tries(column: Incoming, kinds: Sequence[IcebergType], where: str, drops: bool) -> tuple[Try, ...]:
    found = tuple(made for kind in kinds if (made := _try(column, kind, drops)))
    if not found:
        is_kind = called(known(column.kind)) if column.kind else "text"
        what = f"the column `{column.name}` of {where} is {is_kind}, which can't become {called(kinds[0])}"
        raise Mistake("LOAD_TYPE", what, at=where, fix="convert it, or load it into another column")
    return found


def _try(column: Incoming, kind: IcebergType, drops: bool = False) -> Try | None:
    """Return how a column is stored as `kind`, or None where that is not possible whatever the values.

    With `drops` fields inside it that the type lacks are left out.
    """
    sql, source = column.sql, column.kind
    if source is None and column.raw is not None and not kind.is_primitive:
        return _from_any_json(column.raw, kind, drops)
    if source is None:
        # What was null in every row has no type; it goes anywhere.
        nothing = Try(kind, f"CAST(NULL AS {duckdb_type(kind)})", sql, "false") if not column.guesses else None
        return rule(sql, kind, column.writing) or nothing
    same = bare(source) == bare(kind)
    if column.json:
        return _from_json(sql, source, kind, drops)
    if same or (source.is_primitive and fits(source, kind)):
        return Try(kind, f"CAST({sql} AS {duckdb_type(kind)})", sql)
    if not kind.is_primitive and converts(bare(source), bare(kind), drops=drops):
        return Try(kind, f"CAST({sql} AS {duckdb_type(kind)})", sql)
    if not castable(source, kind):
        return None
    if isinstance(source, StringType):
        return rule(sql, kind)
    value = f"TRY_CAST({sql} AS {duckdb_type(kind)})"
    if isinstance(kind, StringType):
        return Try(kind, value, sql)
    return Try(kind, value, sql, f"TRY_CAST({value} AS {duckdb_type(source)}) = {sql}")


def _from_any_json(sql: str, kind: IcebergType, drops: bool) -> Try | None:
    """Return how a JSON value is stored that has the shape of the type in some rows only."""
    if kind.is_primitive:
        return rule(f"json_extract_string({sql}, '$')", kind)
    try:
        fitting = shape_fits(f"[{sql}]", bare(kind), drops=drops)
    except Unfit:
        return None
    return Try(kind, f"TRY_CAST({sql} AS {duckdb_type(kind)})", sql, fitting)


def _from_json(sql: str, source: IcebergType, kind: IcebergType, drops: bool) -> Try | None:
    """Return how a JSON value is stored; where the shape over all rows does not fit, each row's own one decides."""
    if isinstance(kind, StringType):
        return Try(kind, f"CAST({sql} AS VARCHAR)", sql)
    try:
        leaves = leaves_fit(sql, source, bare(kind))
    except Unfit:
        return _from_any_json(sql, kind, drops)
    # A plain cast refuses objects that lack a key, so this one, which makes null of whole numbers beyond a long.
    value = f"TRY_CAST({sql} AS {duckdb_type(kind)})"
    longs = "long" in str(kind) or "int" in str(kind)
    small = f"NOT regexp_matches(CAST({sql} AS VARCHAR), '{_TOO_LONG}')" if longs else None
    return Try(kind, value, sql, " AND ".join(filter(None, (small, leaves))) or None)


def _complete(
    columns: Sequence[Incoming],
    chosen: Sequence[Choice],
    said: dict[str, NestedField],
    table: "Schema | None",
    where: str,
) -> None:
    """Refuse files that lack a column which can't be lacking."""
    present = {column.name.lower() for column in columns}
    needed = {field.name for field in table.fields if field.required} if table else set()
    missing = sorted(name for name in (needed | {field.name for field in said.values()}) if name.lower() not in present)
    if missing:
        close = nearest(missing[0], [column.name for column in columns])
        what = f"{where} lacks {listed(missing)}" + (f"; close: `{close}`" if close else "")
        raise Mistake("LOAD_COLUMN_MISSING", what, at=where, fix="add the column, or correct its name")
    if table is not None and chosen and not any(choice.stored for choice in chosen):
        what = f"{where} has none of the table's columns: it has {listed(present)}, the table {listed(_names(table))}"
        fix = "is it the right table? For CSV without a header say --no-header"
        raise Mistake("LOAD_COLUMNS_UNKNOWN", what, at=where, fix=fix)
    if not chosen:
        raise Mistake(
            "LOAD_COLUMNS_UNKNOWN", f"{where} has no column that could be loaded", at=where, fix="look into it"
        )


def _refuse_reserved(chosen: Sequence[Choice], where: str) -> None:
    """Refuse a new column whose name is not to be had; a table that has such a column is still filled."""
    for choice in chosen:
        why = why_reserved(choice.name) if choice.stored is None else None
        if why:
            what = f"{where} can't be loaded: it has a column {shown(choice.name)}, {why}"
            raise Mistake("LOAD_COLUMN_NAME", what, at=where, fix="rename the column where the rows come from")


def _unknown(unknown: Sequence[str], known_names: Sequence[str], where: str) -> Mistake:
    close = nearest(unknown[0], known_names)
    what = f"{where} has columns that the table does not have: {listed(unknown)}"
    fix = "correct the name, or take them in with --on-new-column add, or leave them out with ignore"
    return Mistake("LOAD_NEW_COLUMN", what + (f"; close: `{close}`" if close else ""), at=where, fix=fix)


def _names(table: "Schema | None") -> list[str]:
    return [field.name for field in table.fields] if table else []


def _field(table: "Schema | None", name: str) -> NestedField | None:
    """Return the table's column of a name: the same name, else the same but for case."""
    if table is None:
        return None
    exact = [field for field in table.fields if field.name == name]
    loose = [field for field in table.fields if field.name.lower() == name.lower()]
    return next(iter(exact or loose), None)
