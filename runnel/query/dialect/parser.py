"""Parse Spark SQL text into sqlglot's tree, so that both engines see the same tokens.

If two parsers disagree about where a comment or a string ends, text can slip past a check. So Spark never gets the
user's text, but text rebuilt from the checked tokens: without comments and hints, with strings escaped in one way, and
with `${...}` broken up, which Spark would replace by a setting or an environment variable. Function calls stay as typed
(`exp.Anonymous`): sqlglot's own renaming of functions would lose what Spark means by them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from runnel.declare.sql.spark_parser import GroupingParser
from runnel.errors import Mistake, did_you_mean
from runnel.names import quote_value

MAX_CHARACTERS = 200_000
MAX_TOKENS = 20_000
MAX_NESTING = 40
_SPECIAL_FORMS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "SUBSTR", "TRIM", "OVERLAY")
SPELLING_KEY = "written"
"""The key in a node's meta under which the user's spelling is kept if sqlglot's tree does not keep it."""
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPED_CHARACTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_REFUSED_TOKENS = {
    TokenType.BLOCK_START,
    TokenType.BLOCK_END,
    TokenType.L_BRACE,
    TokenType.R_BRACE,
    TokenType.PARAMETER,
}
_REFUSED_TOKENS |= {
    TokenType.PIPE_GT,
    TokenType.PLACEHOLDER,
    TokenType.HASH,
    TokenType.BIT_STRING,
    TokenType.BYTE_STRING,
}
_REFUSED_TOKENS |= {
    TokenType.NATIONAL_STRING,
    TokenType.UNICODE_STRING,
    TokenType.HEREDOC_STRING,
    TokenType.SESSION_PARAMETER,
}
_LIST_ENDS = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.FROM, TokenType.ORDER_BY, TokenType.GROUP_BY}


def _remember_spelling(name: str) -> Callable[[SparkParser], exp.Expr]:
    def parse(parser: SparkParser) -> exp.Expr:
        first_text, start = parser._curr.text, parser._index
        node: exp.Expr = SparkParser.FUNCTION_PARSERS[name](parser)
        node.meta[SPELLING_KEY] = first_text if name == "EXTRACT" else name.lower()
        if name == "SUBSTR" and _has_from(parser._tokens[start : parser._index]):
            node.meta[SPELLING_KEY] = "substring"  # Spark's name of SUBSTR(x FROM y)
        return node

    return parse


def _has_from(tokens: Sequence[Token]) -> bool:
    depth = 0
    for token in tokens:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type == TokenType.FROM:
            return True
    return False


def _typed_literal(kind: exp.DType) -> Callable[..., exp.Expr]:
    def parse(_parser: SparkParser, this: exp.Expr, *_: object) -> exp.Expr:
        node = exp.Cast(this=this, to=exp.DataType(this=kind))
        node.meta[SPELLING_KEY] = "literal"
        return node

    return parse


class _Parser(GroupingParser):
    FUNCTIONS = {}  # noqa: RUF012
    FUNCTION_PARSERS = {name: _remember_spelling(name) for name in _SPECIAL_FORMS}  # noqa: RUF012
    TYPE_LITERAL_PARSERS = {  # noqa: RUF012
        kind: _typed_literal(kind)
        for kind in (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
    }
    UNARY_PARSERS = {  # noqa: RUF012
        **SparkParser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: exp.Anonymous(this="positive", expressions=[self._parse_unary()]),
    }
    NO_PAREN_FUNCTIONS = {}  # noqa: RUF012
    NO_PAREN_FUNCTION_PARSERS = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}  # noqa: RUF012
    STRICT_CAST = True


class _Dialect(Spark):
    Parser = _Parser


_DIALECT = _Dialect()


def read_statement(sql: str) -> tuple[exp.Expr, str]:
    """Parse the one statement in `sql`; return its tree, and the rebuilt text that is safe to pass to Spark."""
    if len(sql) > MAX_CHARACTERS:
        raise _syntax_error(f"the query has {len(sql)} characters; {MAX_CHARACTERS} are allowed", None)
    if "\0" in sql:
        raise _syntax_error("the query holds a NUL character", None, "remove it")
    try:
        tokens = list(_normalize_tokens(sql, _DIALECT.tokenize(sql)))
        _refuse_other_statements(tokens)
        _refuse_unreadable(tokens)
        _refuse_lenient_syntax(tokens)
        trees = _DIALECT.parser().parse(tokens, sql)
    except TokenError as error:
        raise _unclosed_error(sql) from error
    except ParseError as error:
        raise _describe_parse_error(error) from error
    except RecursionError:
        raise _syntax_error("the query is nested too deeply", None, "split it into several WITH parts") from None
    if len(trees) != 1 or trees[0] is None:
        raise _syntax_error("the query is empty", None, "write a SELECT")
    return trees[0], _rebuild_text(sql, tokens)


def not_read_only_error(keyword: str) -> Mistake:
    """Return the error for a statement that is not a query."""
    return Mistake(
        "SQL_NOT_READ_ONLY",
        f"a query starts with SELECT, WITH or VALUES, not with {quote_value(keyword)}"
        + did_you_mean(keyword, ("SELECT", "WITH", "VALUES")),
        fix="write a SELECT; data is changed by tasks and by `runnel load`",
    )


def _refuse_other_statements(tokens: Sequence[Token]) -> None:
    """Refuse other statements before parsing: sqlglot turns a statement that it does not know into a command."""
    first = next((token for token in tokens if token.token_type != TokenType.L_PAREN), None)
    if first is not None and first.token_type not in (TokenType.SELECT, TokenType.WITH, TokenType.VALUES):
        raise not_read_only_error(first.text.upper())
    for token, next_token in pairwise(tokens):
        if token.token_type == TokenType.USING and next_token.token_type == TokenType.STRING:
            # SELECT TRANSFORM, MAP and REDUCE hand rows to a program.
            raise Mistake(
                "SQL_NOT_READ_ONLY", "a query can't run programs", at=_token_location(token), fix="use a task"
            )


def _normalize_tokens(sql: str, tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens with strings as Spark reads them, number suffixes joined, without hints and final semicolons."""
    statement_tokens = [token for token in tokens if token.token_type != TokenType.HINT]
    while statement_tokens and statement_tokens[-1].token_type == TokenType.SEMICOLON:
        statement_tokens.pop()
    pending: Token | None = None
    for token in statement_tokens:
        source = sql[token.start : token.end + 1]
        if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
            token.text = source[2:-1] if token.token_type == TokenType.RAW_STRING else _unescape_string(source)
            token.token_type = TokenType.STRING
            if pending is not None and pending.token_type == TokenType.STRING:
                # Spark joins adjacent strings; without a gap, two equal quotes are one escaped quote.
                is_doubled_quote = pending.end + 1 == token.start and sql[pending.end] == source[0]
                pending.text += (source[0] if is_doubled_quote else "") + token.text
                pending.end = token.end
                continue
        elif pending is not None and pending.token_type == TokenType.NUMBER and token.start == pending.start:
            pending.text = source
            continue
        if pending is not None:
            yield pending
        pending = token
    if pending is not None:
        yield pending


def _unescape_string(source: str) -> str:
    def value(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "uU" and len(code) > 1:
            return chr(int(code[1:], 16)) if int(code[1:], 16) < 0x110000 else match[0]
        if len(code) == 3:
            return chr(int(code, 8))
        return _ESCAPED_CHARACTERS.get(code, code)

    return _ESCAPE.sub(value, source[1:-1])


def _refuse_unreadable(tokens: Sequence[Token]) -> None:
    if len(tokens) > MAX_TOKENS:
        raise _syntax_error(f"the query has {len(tokens)} words; {MAX_TOKENS} are allowed", None)
    depth = 0
    for token in tokens:
        depth += token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if depth > MAX_NESTING:
            raise _syntax_error("the query is nested too deeply", token, "split it into several WITH parts")
        if token.token_type == TokenType.STRING:
            continue
        if token.token_type in _REFUSED_TOKENS or token.text == "${" or "${" in token.text:
            fix = "write values as literals; parameters, variables and templates are not replaced here"
            raise _syntax_error(f"{quote_value(token.text)} has no meaning in a query", token, fix)
        if token.token_type == TokenType.SEMICOLON:
            raise Mistake(
                "SQL_NOT_READ_ONLY",
                "the query holds several statements",
                at=_token_location(token),
                fix="send one SELECT at a time",
            )
        if token.token_type != TokenType.IDENTIFIER and not token.text.isascii():
            raise _syntax_error(f"{quote_value(token.text)} needs quotes", token, "put such a name into backquotes")
        if not token.text.isprintable():
            raise _syntax_error(f"{quote_value(token.text)} holds a control character", token)


def _refuse_lenient_syntax(tokens: Sequence[Token]) -> None:
    """Refuse what sqlglot accepts and Spark does not: a trailing comma, and a star with EXCEPT but no list."""
    for token, next_token in pairwise(tokens):
        if token.token_type == TokenType.COMMA and next_token.token_type in _LIST_ENDS:
            raise _syntax_error(
                f"there is nothing between the comma and {quote_value(next_token.text)}", token, "remove the comma"
            )
        if (
            token.token_type == TokenType.STAR
            and next_token.token_type == TokenType.EXCEPT
            and next_token is not tokens[-1]
        ):
            token_after_next = tokens[tokens.index(next_token) + 1]
            if token_after_next.token_type not in (
                TokenType.L_PAREN,
                TokenType.SELECT,
                TokenType.ALL,
                TokenType.DISTINCT,
            ):
                raise _syntax_error(
                    "the columns after EXCEPT must be in parentheses", next_token, "write * EXCEPT (a, b)"
                )


def _rebuild_text(sql: str, tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    end = 0
    for token in tokens:
        gap = sql[end : token.start]
        parts.append("" if not gap else "\n" if "\n" in gap else " ")
        parts.append(_token_text(sql, token))
        end = token.end + 1
    return "".join(parts[1:])


def _token_text(sql: str, token: Token) -> str:
    if token.token_type == TokenType.STRING:
        escaped = token.text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\u007b")
        return "'" + escaped + "'"
    if token.token_type == TokenType.IDENTIFIER:
        return "`" + token.text.replace("`", "``") + "`"
    return sql[token.start : token.end + 1]


def _token_location(token: Token) -> str:
    return f"line {token.line}, column {max(token.col - (token.end - token.start), 1)}"


def _syntax_error(what: str, token: Token | None, fix: str | None = None) -> Mistake:
    return Mistake("SQL_SYNTAX", what, at=_token_location(token) if token else None, fix=fix)


def _unclosed_error(sql: str) -> Mistake:
    return Mistake(
        "SQL_SYNTAX",
        f"a string, a name in backquotes or a comment is not closed in {quote_value(sql)}",
        fix="close it; inside a string, write \\' for a quote",
    )


def _describe_parse_error(error: ParseError) -> Mistake:
    first = error.errors[0] if error.errors else {}
    near = str(first.get("highlight") or "").strip()
    what = f"the query can't be read near {quote_value(near)}" if near else "the query can't be read: it ends too early"
    detail = str(first.get("description") or "").removesuffix(".").removesuffix("Invalid expression / Unexpected token")
    location = f"line {first.get('line')}, column {max(int(first.get('col') or 1) - max(len(near) - 1, 0), 1)}"
    return Mistake("SQL_SYNTAX", f"{what}: {detail}" if detail else what, at=location, fix="correct the SQL there")
