"""Let through only what reads: one SELECT over tables of the lake.

An allow-list, of the tree's kinds of node and of functions: what is not known to be harmless is refused. Never touches
the lake; whether the tables exist is for the caller to see.
"""

from dataclasses import dataclass

from sqlglot import exp

from runnel.errors import Mistake, nearest
from runnel.names import TableName, shown
from runnel.query.allowed_functions import GENERATORS, KNOWN, SESSION_NAMES
from runnel.query.dialect.parser import not_read_only, read

_QUERIES = (exp.Select, exp.SetOperation, exp.Values, exp.Subquery)
_NODE_NAMES = """
    Add Alias Aliases All And Anonymous Any Array Between BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr
    BitwiseRightShift BitwiseXor Boolean Bracket CTE Case Cast Cluster Column ColumnDef Cube DPipe DataType
    DataTypeParam Distinct Distribute Div Dot EQ Escape Except Exists Extract Filter From GT GTE Group
    GroupingSets Having HexString ILike Identifier If IgnoreNulls In IntDiv Intersect Interval IntervalSpan Is
    Join LT LTE Lambda Lateral Like Limit Literal Mod Mul NEQ Neg Not Null NullSafeEQ NullSafeNEQ Offset Or
    Order Ordered Overlay Paren Pivot PivotAlias PivotAny Qualify RegexpLike RespectNulls Rollup Select Sort
    Star StrPosition Sub Subquery Substring Table TableAlias TableSample Trim TryCast Tuple Union Values Var
    Where Window WindowSpec With WithinGroup
"""
_NODES = frozenset(_NODE_NAMES.split())


@dataclass(frozen=True)
class Parsed:
    """A query that may be asked.

    `tables` are the tables it reads, as `layer.name`, in the order in which they first appear. `spark_sql` is the text
    for Spark: the checked tokens, without comments and hints; Spark must never be handed `text`.
    """

    text: str
    spark_sql: str
    tables: tuple[str, ...]
    tree: exp.Expr


def parse(sql: str) -> Parsed:
    """Return the query in `sql`, or say why it may not be asked.

    >>> parse("select * from ods.orders").tables
    ('ods.orders',)
    """
    tree, spark_sql = read(sql)
    try:
        nodes = list(tree.walk())
        for node in nodes:
            _admit(node)
        tables = _tables(tree)
    except RecursionError:
        raise Mistake("SQL_SYNTAX", "the query is nested too deeply", fix="split it into WITH parts") from None
    if not isinstance(tree, _QUERIES) or "QueryTransform" in {type(node).__name__ for node in nodes}:
        raise not_read_only(type(tree).__name__.upper())
    return Parsed(sql, spark_sql, tables, tree)


def _admit(node: exp.Expr) -> None:
    kind = type(node).__name__
    if kind == "Version":
        raise Mistake(
            "SQL_NOT_READ_ONLY",
            "time travel is not written in SQL here",
            fix="name the version outside: `runnel query ... --at REF` or lake.query(..., at=REF)",
        )
    if kind not in _NODES:
        raise Mistake("SQL_NOT_READ_ONLY", f"{kind} is not allowed in a query", fix="use a plain SELECT")
    if isinstance(node, exp.Anonymous):
        _admit_function(node)
    elif isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
        raise _unknown_function(node.sql("spark").split("(")[0])
    elif isinstance(node, exp.Lateral):
        _admit_lateral(node)
    elif isinstance(node, exp.Column) and len(node.parts) == 1 and node.name.lower() in SESSION_NAMES:
        raise _unknown_function(node.name)
    elif isinstance(node, exp.With) and node.args.get("recursive"):
        raise Mistake("SQL_NOT_READ_ONLY", "WITH RECURSIVE is not allowed in a query", fix="use a plain WITH")


def _admit_function(node: exp.Anonymous) -> None:
    name = node.this if isinstance(node.this, str) else node.this.name
    if isinstance(node.parent, exp.Table):
        raise Mistake(
            "SQL_FUNCTION",
            f"{shown(name)} can't stand in FROM",
            fix="read tables of the lake, written as layer.name; files are brought in with `runnel load`",
        )
    if name.lower() not in KNOWN:
        raise _unknown_function(name)


def _unknown_function(name: str) -> Mistake:
    close = nearest(name.lower(), KNOWN)
    return Mistake(
        "SQL_FUNCTION",
        f"the function {shown(name)} is not known here" + (f"; close: `{close}`" if close else ""),
        fix="use Spark's built-in functions; those that read files or tell about the machine are left out",
    )


def _admit_lateral(node: exp.Lateral) -> None:
    inner = node.this
    name = str(inner.this) if isinstance(inner, exp.Anonymous) else ""
    if not isinstance(inner, exp.Subquery) and not (node.args.get("view") and name.lower() in GENERATORS):
        raise _unknown_function(name or "lateral")


def _tables(tree: exp.Expr) -> tuple[str, ...]:
    """Return the tables in the order of their first appearance; a name that a WITH in reach defines is none."""
    found: dict[str, None] = {}
    for node in tree.find_all(exp.Table, bfs=False):
        if not isinstance(node.this, exp.Identifier):
            raise Mistake("SQL_FUNCTION", f"{shown(node.sql('spark'))} can't stand in FROM", fix="read a table")
        parts = [part.name for part in node.parts]
        if len(parts) == 1 and _defined(node, parts[0].lower()):
            continue
        found[_table_name(parts)] = None
    return tuple(found)


def _defined(table: exp.Table, name: str) -> bool:
    """Tell whether a WITH gives `name` a meaning where `table` stands: one around it, or an earlier part of its own."""
    child: exp.Expr = table
    node = table.parent
    while node is not None:
        if isinstance(node, exp.With):
            before = node.expressions[: [id(part) for part in node.expressions].index(id(child))]
            if any(part.alias.lower() == name for part in before):
                return True
            # The statement that owns this WITH is not inside it: skip over it, or the part would see itself.
            child, node = node, node.parent
        elif (with_ := node.args.get("with_")) is not None and any(
            part.alias.lower() == name for part in with_.expressions
        ):
            return True
        if node is not None:
            child, node = node, node.parent
    return False


def _table_name(parts: list[str]) -> str:
    text = ".".join(parts)
    if len(parts) == 1:
        fix = f"write the layer too, such as ods.{text}" if text.isidentifier() else "write it as layer.name"
        raise Mistake("NAME_TABLE", f"{shown(text)} is not a table of the lake: it has no layer", fix=fix)
    if len(parts) > 2:
        fix = f"write {'.'.join(parts[-2:])}, and name a branch, tag or commit with --at {parts[0]} (at= in Python)"
        raise Mistake("NAME_TABLE", f"{shown(text)} has {len(parts)} parts; a table is layer.name", fix=fix)
    return str(TableName.parse(text.lower()))
