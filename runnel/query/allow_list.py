"""Allow only read-only queries: one SELECT over tables of the lake.

An allow-list of syntax tree nodes and functions: everything not known to be harmless is refused. Never touches the
lake; the caller checks whether the tables exist.
"""

from dataclasses import dataclass

from sqlglot import exp

from runnel.errors import Mistake, did_you_mean
from runnel.names import TableName, quote_value
from runnel.query.allowed_functions import ALLOWED_FUNCTIONS, GENERATOR_FUNCTIONS, SESSION_NAMES
from runnel.query.dialect.parser import not_read_only_error, read_statement

_QUERY_NODES = (exp.Select, exp.SetOperation, exp.Values, exp.Subquery)
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
_ALLOWED_NODES = frozenset(_NODE_NAMES.split())


@dataclass(frozen=True)
class ParsedQuery:
    """A query that passed the allow-list.

    `tables` are the tables that it reads, as `layer.name`, in order of first appearance. `spark_sql` is the text for
    Spark: the checked tokens, without comments and hints; never pass `text` to Spark.
    """

    text: str
    spark_sql: str
    tables: tuple[str, ...]
    tree: exp.Expr


def parse_allowed_query(sql: str) -> ParsedQuery:
    """Parse `sql`; raise if the query is not allowed.

    >>> parse_allowed_query("select * from ods.orders").tables
    ('ods.orders',)
    """
    tree, spark_sql = read_statement(sql)
    try:
        nodes = list(tree.walk())
        for node in nodes:
            _check_node(node)
        tables = _list_tables(tree)
    except RecursionError:
        raise Mistake("SQL_SYNTAX", "the query is nested too deeply", fix="split it into WITH parts") from None
    if not isinstance(tree, _QUERY_NODES) or "QueryTransform" in {type(node).__name__ for node in nodes}:
        raise not_read_only_error(type(tree).__name__.upper())
    return ParsedQuery(sql, spark_sql, tables, tree)


def _check_node(node: exp.Expr) -> None:
    kind = type(node).__name__
    if kind == "Version":
        raise Mistake(
            "SQL_NOT_READ_ONLY",
            "time travel in SQL is not supported",
            fix="name the version outside: `runnel query ... --at REF` or lake.query(..., at=REF)",
        )
    if kind not in _ALLOWED_NODES:
        raise Mistake("SQL_NOT_READ_ONLY", f"{kind} is not allowed in a query", fix="use a plain SELECT")
    if isinstance(node, exp.Anonymous):
        _check_function(node)
    elif isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
        raise _describe_unknown_function(node.sql("spark").split("(")[0])
    elif isinstance(node, exp.Lateral):
        _check_lateral(node)
    elif isinstance(node, exp.Column) and len(node.parts) == 1 and node.name.lower() in SESSION_NAMES:
        raise _describe_unknown_function(node.name)
    elif isinstance(node, exp.With) and node.args.get("recursive"):
        raise Mistake("SQL_NOT_READ_ONLY", "WITH RECURSIVE is not allowed in a query", fix="use a plain WITH")


def _check_function(node: exp.Anonymous) -> None:
    name = node.this if isinstance(node.this, str) else node.this.name
    if isinstance(node.parent, exp.Table):
        raise Mistake(
            "SQL_FUNCTION",
            f"{quote_value(name)} is not allowed in FROM",
            fix="read tables of the lake, written as layer.name; files are brought in with `runnel load`",
        )
    if name.lower() not in ALLOWED_FUNCTIONS:
        raise _describe_unknown_function(name)


def _describe_unknown_function(name: str) -> Mistake:
    return Mistake(
        "SQL_FUNCTION",
        f"the function {quote_value(name)} is not supported" + did_you_mean(name.lower(), ALLOWED_FUNCTIONS),
        fix="use Spark's built-in functions; functions that read files or describe the machine are not available",
    )


def _check_lateral(node: exp.Lateral) -> None:
    inner = node.this
    name = str(inner.this) if isinstance(inner, exp.Anonymous) else ""
    if not isinstance(inner, exp.Subquery) and not (node.args.get("view") and name.lower() in GENERATOR_FUNCTIONS):
        raise _describe_unknown_function(name or "lateral")


def _list_tables(tree: exp.Expr) -> tuple[str, ...]:
    """Return the tables in order of first appearance, except names that a WITH in scope defines."""
    names: dict[str, None] = {}
    for node in tree.find_all(exp.Table, bfs=False):
        if not isinstance(node.this, exp.Identifier):
            raise Mistake(
                "SQL_FUNCTION", f"{quote_value(node.sql('spark'))} is not allowed in FROM", fix="read a table"
            )
        parts = [part.name for part in node.parts]
        if len(parts) == 1 and _is_defined_by_with(node, parts[0].lower()):
            continue
        names[_parse_table_name(parts)] = None
    return tuple(names)


def _is_defined_by_with(table: exp.Table, name: str) -> bool:
    """Return whether a WITH defines `name` in the scope of `table`: an enclosing one, or an earlier part of its own."""
    child: exp.Expr = table
    node = table.parent
    while node is not None:
        if isinstance(node, exp.With):
            earlier_parts = node.expressions[: [id(part) for part in node.expressions].index(id(child))]
            if any(part.alias.lower() == name for part in earlier_parts):
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


def _parse_table_name(parts: list[str]) -> str:
    text = ".".join(parts)
    if len(parts) == 1:
        fix = f"write the layer too, such as ods.{text}" if text.isidentifier() else "write it as layer.name"
        raise Mistake("NAME_TABLE", f"{quote_value(text)} is not a table of the lake: it has no layer", fix=fix)
    if len(parts) > 2:
        fix = f"write {'.'.join(parts[-2:])}, and name a branch, tag or commit with --at {parts[0]} (at= in Python)"
        raise Mistake("NAME_TABLE", f"{quote_value(text)} has {len(parts)} parts; a table is layer.name", fix=fix)
    return str(TableName.parse(text.lower()))
