"""Parse the SQL of a task: find its tables and parameters, and normalize its text.

Pure: text in, values out. Spark runs the original SQL; sqlglot only finds the tables and parameters that it names.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from runnel.declare.sql.spark_parser import SparkDialect
from runnel.errors import Mistake, did_you_mean
from runnel.names import quote_value

_QUERIES = (exp.Select, exp.SetOperation, exp.Values, exp.Subquery)
_SPARK = SparkDialect()
_WORDS = """
    ALL AND ANTI AS ASC BETWEEN BY CASE CROSS DESC DISTINCT ELSE END EXCEPT EXISTS FALSE FROM FULL GROUP HAVING IN
    INNER INTERSECT IS JOIN LATERAL LEFT LIKE LIMIT NOT NULL NULLS ON OR ORDER OUTER OVER PARTITION RIGHT RLIKE SELECT
    SEMI THEN TRUE UNION USING VALUES WHEN WHERE WITH
"""
_KEYWORDS = frozenset(_WORDS.split())


@dataclass(frozen=True)
class TableReference:
    """A table name in the SQL: its parts, and the positions of its first and last character.

    `is_unaliased` says that columns can be qualified by the table's own name, and that an alias may be added.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    is_unaliased: bool = False

    @property
    def name(self) -> str:
        """Return the parts joined by dots, in lower case: Spark's names are case-insensitive."""
        return ".".join(self.parts).lower()


@lru_cache(maxsize=256)
def find_references(sql: str) -> tuple[TableReference, ...]:
    """Return every reference to a table in a query, in the order of the text."""
    references = []
    for node in parse_query(sql).find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier):
            continue  # a table function, such as range(10)
        if node.args.get("version") is not None:
            fix = "leave out VERSION AS OF: a task reads the versions that its run was planned with"
            raise Mistake(
                "DECLARE_SQL", f"{quote_value(node.name)} is read at a version", at=_line_text(node.this), fix=fix
            )
        parts = tuple(part.name for part in node.parts)
        if len(parts) == 1 and _is_defined_by_with(node, parts[0].lower()):
            continue
        first, last = node.parts[0].meta, node.parts[-1].meta
        reference = TableReference(parts, first["start"], last["end"], _may_have_alias(node))
        references.append(reference)
    return tuple(sorted(references, key=lambda reference: reference.start))


def _may_have_alias(table: exp.Table) -> bool:
    """Return whether a table has no alias and stands where one may be written right after its name."""
    is_relation = isinstance(table.parent, exp.From | exp.Join)
    return is_relation and not table.alias and table.args.get("sample") is None


def find_parameters(sql: str) -> tuple[str, ...]:
    """Return the names of the parameters of a query, each once.

    >>> find_parameters("select * from ods.a where x >= :low and y < :high and z > :low")
    ('low', 'high')
    """
    names: dict[str, None] = {}
    for node in parse_query(sql).find_all(exp.Placeholder, bfs=False):
        if not node.name:
            raise Mistake("DECLARE_SQL", "`?` has no name", fix="name the parameter, such as :min_amount")
        names[node.name] = None
    return tuple(names)


def normalize_sql(sql: str) -> str:
    """Return the text of a query without comments and formatting, so that changes of those don't matter.

    >>> normalize_sql("select  A -- note") == normalize_sql("SELECT A")
    True
    >>> normalize_sql("select a") == normalize_sql("select A")
    False
    """
    tokens = _tokenize(sql)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    pieces: list[str] = []
    previous: Token | None = None
    for token in tokens:
        if previous is not None and token.start == previous.start:
            continue  # the suffix of a number, such as 10L: the number's text already has it
        # Two adjacent strings without a gap are one string with a quote in it; with a gap they are concatenated.
        joined = previous is not None and previous.token_type == token.token_type == TokenType.STRING
        pieces.append("" if joined and previous is not None and previous.end + 1 == token.start else " ")
        pieces.append(_token_text(sql, token, previous))
        previous = token
    return "".join(pieces[1:])


def _token_text(sql: str, token: Token, previous: Token | None) -> str:
    """Return the text of a token; keywords in one case unless used as a name, because the case of a name matters."""
    text = sql[token.start : token.end + 1]
    is_name = previous is not None and previous.token_type in (TokenType.ALIAS, TokenType.DOT)
    return text.upper() if text.upper() in _KEYWORDS and not is_name else text


@lru_cache(maxsize=256)
def parse_query(sql: str) -> exp.Expr:
    """Parse the single query in `sql`; raise an error that names the line if it can't be parsed.

    >>> parse_query("select window.start from a group by window(ts, '1 minute')").sql()
    "SELECT window.start FROM a GROUP BY WINDOW(ts, '1 minute')"
    """
    _refuse_other_first_words(sql)
    try:
        trees = [tree for tree in _SPARK.parser().parse(_fix_window_calls(_tokenize(sql)), sql) if tree is not None]
    except ParseError as error:
        raise _describe_parse_error(error) from error
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


def _refuse_other_first_words(sql: str) -> None:
    """Refuse a misspelled first word, because a parser blames what stands after it."""
    first_token = next(iter(_tokenize(sql)), None)
    if first_token is not None and first_token.token_type == TokenType.VAR:
        word = first_token.text
        what = f"a task is a SELECT, but its SQL starts with {quote_value(word)}"
        what += did_you_mean(word.lower(), ("select", "with", "values", "from"))
        raise Mistake("SQL_SYNTAX", what, at=f"line {first_token.line}", fix="start it with SELECT or WITH")


def _tokenize(sql: str) -> list[Token]:
    try:
        return list(_SPARK.tokenize(sql))
    except TokenError as error:
        what = "a string, a name in backquotes or a comment is not closed"
        raise Mistake("SQL_SYNTAX", what, fix="close it; inside a string, write \\' for a quote") from error


def _fix_window_calls(tokens: list[Token]) -> list[Token]:
    """Mark `window(` as a function call: sqlglot parses it as a WINDOW clause after GROUP BY."""
    for token, next_token in pairwise(tokens):
        if token.token_type == TokenType.WINDOW and next_token.token_type == TokenType.L_PAREN:
            token.token_type = TokenType.VAR
    return tokens


def _describe_parse_error(error: ParseError) -> Mistake:
    first = error.errors[0] if error.errors else {}
    near = str(first.get("highlight") or "").strip()
    detail = str(first.get("description") or "").split(" but got <")[0].removesuffix(".")
    what = f"the SQL can't be read near {quote_value(near)}" if near else "the SQL can't be read"
    if detail and not detail.startswith("Invalid expression"):
        what += f": {detail[0].lower()}{detail[1:]}"
    return Mistake("SQL_SYNTAX", what, at=f"line {first.get('line') or 1}", fix="correct the SQL there")


def _line_text(node: exp.Expr) -> str:
    return f"line {node.meta.get('line', 1)}"


def _is_defined_by_with(table: exp.Table, name: str) -> bool:
    """Return whether a WITH defines `name` for `table`: an enclosing WITH, or an earlier part of the same WITH."""
    child: exp.Expr = table
    node = table.parent
    while node is not None:
        if isinstance(node, exp.With):
            part_ids = [id(part) for part in node.expressions]
            last = len(part_ids) if node.args.get("recursive") else part_ids.index(id(child))
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
