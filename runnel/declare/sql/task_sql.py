"""Read the SQL of a task: its tables, its parameters, and its text without what does not count.

Pure: text in, values out. Spark reads the SQL itself; here sqlglot only tells which tables and parameters it names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from runnel.errors import Mistake
from runnel.names import TableName, shown

_QUERIES = (exp.Select, exp.SetOperation, exp.Values, exp.Subquery)
_SPARK = Spark()
_WORDS = """
    ALL AND ANTI AS ASC BETWEEN BY CASE CROSS DESC DISTINCT ELSE END EXCEPT EXISTS FALSE FROM FULL GROUP HAVING IN
    INNER INTERSECT IS JOIN LATERAL LEFT LIKE LIMIT NOT NULL NULLS ON OR ORDER OUTER OVER PARTITION RIGHT RLIKE SELECT
    SEMI THEN TRUE UNION USING VALUES WHEN WHERE WITH
"""
_KEYWORDS = frozenset(_WORDS.split())


@dataclass(frozen=True)
class Reference:
    """A table as the SQL names it, and where: its parts, its line, and its first and last character in the text."""

    parts: tuple[str, ...]
    line: int
    start: int
    end: int

    @property
    def name(self) -> str:
        """Return the parts with dots, in lower case: Spark does not tell cases apart."""
        return ".".join(self.parts).lower()


def tables_in(sql: str) -> tuple[TableName, ...]:
    """Return the tables that a query reads, each once, in order of appearance; names that a WITH defines are none.

    >>> [str(table) for table in tables_in("with t as (select * from ods.a) select * from t join ods.b using (id)")]
    ['ods.a', 'ods.b']
    """
    found: dict[TableName, None] = {}
    for reference in references_in(sql):
        found[table_of(reference)] = None
    return tuple(found)


def table_of(reference: Reference) -> TableName:
    """Return the table that a name in SQL means, or say why it means none."""
    at = f"line {reference.line}"
    if len(reference.parts) > 2:
        fix = f"write {'.'.join(reference.parts[-2:])}: a task reads the branch that it runs on"
        raise Mistake("NAME_TABLE", f"{shown(reference.name)} has more than two parts", at=at, fix=fix)
    if len(reference.parts) == 1:
        fix = f"write its layer too, such as ods.{reference.name}"
        raise Mistake("NAME_TABLE", f"{shown(reference.name)} has no layer", at=at, fix=fix)
    try:
        return TableName.parse(reference.name)
    except Mistake as mistake:
        mistake.at = at
        raise


@lru_cache(maxsize=256)
def references_in(sql: str) -> tuple[Reference, ...]:
    """Return every place where a query names a table, in order of the text."""
    found = []
    for node in read(sql).find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            continue  # a function that gives rows, such as range(10)
        if node.args.get("version") is not None:
            fix = "leave out VERSION AS OF: a task reads the versions that its run was planned with"
            raise Mistake("DECLARE_SQL", f"{shown(node.name)} is read at a version", at=_line(node.this), fix=fix)
        parts = tuple(part.name for part in node.parts)
        if len(parts) == 1 and _is_defined(node, parts[0].lower()):
            continue
        first, last = node.parts[0].meta, node.parts[-1].meta
        found.append(Reference(parts, first["line"], first["start"], last["end"]))
    return tuple(sorted(found, key=lambda reference: reference.start))


def parameters_in(sql: str) -> tuple[str, ...]:
    """Return the names of the parameters of a query, each once.

    >>> parameters_in("select * from ods.a where x >= :low and y < :high and z > :low")
    ('low', 'high')
    """
    found: dict[str, None] = {}
    for node in read(sql).find_all(exp.Placeholder, bfs=False):
        if not node.name:
            raise Mistake("DECLARE_SQL", "`?` has no name", fix="name the parameter, such as :min_amount")
        found[node.name] = None
    return tuple(found)


def replaced(sql: str, names: Mapping[TableName, str]) -> str:
    """Return the text with these tables named otherwise; all else stays as it is.

    >>> replaced("select a.x /* ods.a */ from ods.a", {TableName("ods", "a"): "run_1.ods.a"})
    'select a.x /* ods.a */ from run_1.ods.a'
    """
    parts: list[str] = []
    end = 0
    for reference in references_in(sql):
        new = names.get(TableName.stored(reference.name)) if len(reference.parts) == 2 else None
        if new is not None:
            parts += [sql[end : reference.start], new]
            end = reference.end + 1
    return "".join([*parts, sql[end:]])


def normalised(sql: str) -> str:
    """Return the text of a query without comments and formatting: what stays the same when only those change.

    >>> normalised("select  A -- note") == normalised("SELECT A"), normalised("select a") == normalised("select A")
    (True, False)
    """
    tokens = _tokens(sql)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    words: list[str] = []
    before: Token | None = None
    for token in tokens:
        if before is not None and token.start == before.start:
            continue  # the suffix of a number, such as 10L: its text was taken whole
        # Two strings without a gap are one with a quote in it, with a gap they are joined.
        joined = before is not None and before.token_type == token.token_type == TokenType.STRING
        words.append("" if joined and before is not None and before.end + 1 == token.start else " ")
        words.append(_word(sql, token, before))
        before = token
    return "".join(words[1:])


def _word(sql: str, token: Token, before: Token | None) -> str:
    """Return a token; keywords in one case, unless they stand where a name does: the case of a name counts."""
    text = sql[token.start : token.end + 1]
    is_name = before is not None and before.token_type in (TokenType.ALIAS, TokenType.DOT)
    return text.upper() if text.upper() in _KEYWORDS and not is_name else text


@lru_cache(maxsize=256)
def read(sql: str) -> exp.Expr:
    """Return the tree of the one query in `sql`, or say on which line it can't be read.

    >>> read("select window.start from a group by window(ts, '1 minute')").sql()
    "SELECT window.start FROM a GROUP BY WINDOW(ts, '1 minute')"
    """
    try:
        trees = [tree for tree in _SPARK.parser().parse(_with_windows(_tokens(sql)), sql) if tree is not None]
    except ParseError as error:
        raise _misplaced(error) from error
    except RecursionError:
        raise Mistake("SQL_SYNTAX", "the SQL is nested too deeply", fix="split it into WITH parts") from None
    if not trees:
        raise Mistake("SQL_SYNTAX", "there is no SQL", fix="write a SELECT")
    if len(trees) > 1:
        raise Mistake("DECLARE_SQL", f"there are {len(trees)} statements", fix="a task is one SELECT")
    if not isinstance(trees[0], _QUERIES):
        what = f"a task is a SELECT, not {type(trees[0]).__name__.upper()}"
        raise Mistake("DECLARE_SQL", what, fix="write what the table holds; Runnel creates and writes it")
    return trees[0]


def _tokens(sql: str) -> list[Token]:
    try:
        return list(_SPARK.tokenize(sql))
    except TokenError as error:
        what = "a string, a name in backquotes or a comment is not closed"
        raise Mistake("SQL_SYNTAX", what, fix="close it; inside a string, write \\' for a quote") from error


def _with_windows(tokens: list[Token]) -> list[Token]:
    """Return tokens in which `window(` is a function: sqlglot takes it for a WINDOW clause after GROUP BY."""
    for token, after in pairwise(tokens):
        if token.token_type == TokenType.WINDOW and after.token_type == TokenType.L_PAREN:
            token.token_type = TokenType.VAR
    return tokens


def _misplaced(error: ParseError) -> Mistake:
    first = error.errors[0] if error.errors else {}
    near = str(first.get("highlight") or "").strip()
    detail = str(first.get("description") or "").split(" but got <")[0].removesuffix(".")
    what = f"the SQL can't be read near {shown(near)}" if near else "the SQL can't be read"
    if detail and not detail.startswith("Invalid expression"):
        what += f": {detail[0].lower()}{detail[1:]}"
    return Mistake("SQL_SYNTAX", what, at=f"line {first.get('line') or 1}", fix="correct the SQL there")


def _line(node: exp.Expr) -> str:
    return f"line {node.meta.get('line', 1)}"


def _is_defined(table: exp.Table, name: str) -> bool:
    """Tell whether a WITH gives `name` a meaning where `table` stands: one around it, or an earlier part of its own."""
    child: exp.Expr = table
    node = table.parent
    while node is not None:
        if isinstance(node, exp.With):
            places = [id(part) for part in node.expressions]
            last = len(places) if node.args.get("recursive") else places.index(id(child))
            last += bool(node.args.get("recursive"))
            if any(part.alias.lower() == name for part in node.expressions[:last]):
                return True
            child, node = node, node.parent  # the statement that owns this WITH is not inside it: step over it
        elif (with_ := node.args.get("with_")) is not None and any(
            part.alias.lower() == name for part in with_.expressions
        ):
            return True
        if node is not None:
            child, node = node, node.parent
    return False
