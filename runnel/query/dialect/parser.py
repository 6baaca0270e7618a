"""Read Spark SQL text into sqlglot's tree, such that both engines see the same tokens.

Parsers that disagree about where a comment or a string ends let text slip past a check. So Spark is never handed the
user's text, but the text of the tokens that were checked: comments and hints gone, strings escaped in one way, and
`${...}`, which Spark would replace by a setting or an environment variable, taken apart. Function calls stay as typed
(`exp.Anonymous`): sqlglot's own renaming of functions would blur what Spark means by them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from runnel.errors import Mistake
from runnel.names import shown

MOST_CHARACTERS = 200_000
MOST_TOKENS = 20_000
MOST_NESTING = 40
_FORMS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "SUBSTR", "TRIM", "OVERLAY")
WRITTEN = "written"
"""The key in a node's meta that keeps how something was written where sqlglot's tree does not."""
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_FOREIGN = {TokenType.BLOCK_START, TokenType.BLOCK_END, TokenType.L_BRACE, TokenType.R_BRACE, TokenType.PARAMETER}
_FOREIGN |= {TokenType.PIPE_GT, TokenType.PLACEHOLDER, TokenType.HASH, TokenType.BIT_STRING, TokenType.BYTE_STRING}
_FOREIGN |= {TokenType.NATIONAL_STRING, TokenType.UNICODE_STRING, TokenType.HEREDOC_STRING, TokenType.SESSION_PARAMETER}
_AFTER_LISTS = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.FROM, TokenType.ORDER_BY, TokenType.GROUP_BY}


def _remembering(name: str) -> Callable[[SparkParser], exp.Expr]:
    def parse(parser: SparkParser) -> exp.Expr:
        first, start = parser._curr.text, parser._index
        node: exp.Expr = SparkParser.FUNCTION_PARSERS[name](parser)
        node.meta[WRITTEN] = first if name == "EXTRACT" else name.lower()
        if name == "SUBSTR" and _has_from(parser._tokens[start : parser._index]):
            node.meta[WRITTEN] = "substring"  # Spark's name of SUBSTR(x FROM y)
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
        node.meta[WRITTEN] = "literal"
        return node

    return parse


class _Parser(SparkParser):
    FUNCTIONS = {}  # noqa: RUF012
    FUNCTION_PARSERS = {name: _remembering(name) for name in _FORMS}  # noqa: RUF012
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


def read(sql: str) -> tuple[exp.Expr, str]:
    """Return the tree of the one statement in `sql`, and the text of it that is safe to hand to Spark."""
    if len(sql) > MOST_CHARACTERS:
        raise _mistake(f"the query has {len(sql)} characters; {MOST_CHARACTERS} are allowed", None)
    if "\0" in sql:
        raise _mistake("the query holds a NUL character", None, "remove it")
    try:
        tokens = list(_settled(sql, _DIALECT.tokenize(sql)))
        _refuse_other_statements(tokens)
        _refuse_unreadable(sql, tokens)
        _refuse_lenience(tokens)
        trees = _DIALECT.parser().parse(tokens, sql)
    except TokenError as error:
        raise _unfinished(sql) from error
    except ParseError as error:
        raise _misplaced(error) from error
    except RecursionError:
        raise _mistake("the query is nested too deeply", None, "split it into several WITH parts") from None
    if len(trees) != 1 or trees[0] is None:
        raise _mistake("the query is empty", None, "write a SELECT")
    return trees[0], _text(sql, tokens)


def not_read_only(word: str) -> Mistake:
    """Return what to say about a statement that is no query."""
    return Mistake(
        "SQL_NOT_READ_ONLY",
        f"a query starts with SELECT, WITH or VALUES, not with {shown(word)}",
        fix="ask a SELECT; data is changed by tasks and by `runnel load`",
    )


def _refuse_other_statements(tokens: Sequence[Token]) -> None:
    """Look at the words before they are parsed: sqlglot turns a statement that it does not know into a command."""
    first = next((token for token in tokens if token.token_type != TokenType.L_PAREN), None)
    if first is not None and first.token_type not in (TokenType.SELECT, TokenType.WITH, TokenType.VALUES):
        raise not_read_only(first.text.upper())
    for token, after in pairwise(tokens):
        if token.token_type == TokenType.USING and after.token_type == TokenType.STRING:
            # SELECT TRANSFORM, MAP and REDUCE hand rows to a program.
            raise Mistake("SQL_NOT_READ_ONLY", "a query runs no programs", at=_place(token), fix="use a task")


def _settled(sql: str, tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens with strings as Spark reads them, number suffixes joined, hints and last semicolons gone."""
    kept = [token for token in tokens if token.token_type != TokenType.HINT]
    while kept and kept[-1].token_type == TokenType.SEMICOLON:
        kept.pop()
    held: Token | None = None
    for token in kept:
        source = sql[token.start : token.end + 1]
        if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
            token.text = source[2:-1] if token.token_type == TokenType.RAW_STRING else _unescaped(source)
            token.token_type = TokenType.STRING
            if held is not None and held.token_type == TokenType.STRING:
                # Spark joins neighbours; without a gap, two equal quotes are one escaped quote.
                doubled = held.end + 1 == token.start and sql[held.end] == source[0]
                held.text += (source[0] if doubled else "") + token.text
                held.end = token.end
                continue
        elif held is not None and held.token_type == TokenType.NUMBER and token.start == held.start:
            held.text = source
            continue
        if held is not None:
            yield held
        held = token
    if held is not None:
        yield held


def _unescaped(source: str) -> str:
    def value(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "uU" and len(code) > 1:
            return chr(int(code[1:], 16)) if int(code[1:], 16) < 0x110000 else match[0]
        if len(code) == 3:
            return chr(int(code, 8))
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(value, source[1:-1])


def _refuse_unreadable(sql: str, tokens: Sequence[Token]) -> None:
    if len(tokens) > MOST_TOKENS:
        raise _mistake(f"the query has {len(tokens)} words; {MOST_TOKENS} are allowed", None)
    depth = 0
    for token in tokens:
        depth += token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if depth > MOST_NESTING:
            raise _mistake("the query is nested too deeply", token, "split it into several WITH parts")
        if token.token_type == TokenType.STRING:
            continue
        if token.token_type in _FOREIGN or token.text == "${" or "${" in token.text:
            fix = "write values as literals; parameters, variables and templates are not replaced here"
            raise _mistake(f"{shown(token.text)} has no meaning in a query", token, fix)
        if token.token_type == TokenType.SEMICOLON:
            raise Mistake(
                "SQL_NOT_READ_ONLY",
                "the query holds several statements",
                at=_place(token),
                fix="ask one SELECT at a time",
            )
        if token.token_type != TokenType.IDENTIFIER and not token.text.isascii():
            raise _mistake(f"{shown(token.text)} stands outside quotes", token, "put such a name into backquotes")
        if not token.text.isprintable():
            raise _mistake(f"{shown(token.text)} holds a control character", token)


def _refuse_lenience(tokens: Sequence[Token]) -> None:
    """Refuse what sqlglot reads and Spark does not: a comma with nothing after it, a star with EXCEPT and no list."""
    for token, after in pairwise(tokens):
        if token.token_type == TokenType.COMMA and after.token_type in _AFTER_LISTS:
            raise _mistake(f"nothing stands between the comma and {shown(after.text)}", token, "remove the comma")
        if token.token_type == TokenType.STAR and after.token_type == TokenType.EXCEPT and after is not tokens[-1]:
            following = tokens[tokens.index(after) + 1]
            if following.token_type not in (TokenType.L_PAREN, TokenType.SELECT, TokenType.ALL, TokenType.DISTINCT):
                raise _mistake("the columns after EXCEPT stand in brackets", after, "write * EXCEPT (a, b)")


def _text(sql: str, tokens: Sequence[Token]) -> str:
    parts: list[str] = []
    end = 0
    for token in tokens:
        gap = sql[end : token.start]
        parts.append("" if not gap else "\n" if "\n" in gap else " ")
        parts.append(_written(sql, token))
        end = token.end + 1
    return "".join(parts[1:])


def _written(sql: str, token: Token) -> str:
    if token.token_type == TokenType.STRING:
        escaped = token.text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\u007b")
        return "'" + escaped + "'"
    if token.token_type == TokenType.IDENTIFIER:
        return "`" + token.text.replace("`", "``") + "`"
    return sql[token.start : token.end + 1]


def _place(token: Token) -> str:
    return f"line {token.line}, column {max(token.col - (token.end - token.start), 1)}"


def _mistake(what: str, token: Token | None, fix: str | None = None) -> Mistake:
    return Mistake("SQL_SYNTAX", what, at=_place(token) if token else None, fix=fix)


def _unfinished(sql: str) -> Mistake:
    return Mistake(
        "SQL_SYNTAX",
        f"a string, a name in backquotes or a comment is not closed in {shown(sql)}",
        fix="close it; inside a string, write \\' for a quote",
    )


def _misplaced(error: ParseError) -> Mistake:
    first = error.errors[0] if error.errors else {}
    near = str(first.get("highlight") or "").strip()
    what = f"the query can't be read near {shown(near)}" if near else "the query can't be read: it ends too early"
    detail = str(first.get("description") or "").removesuffix(".").removesuffix("Invalid expression / Unexpected token")
    at = f"line {first.get('line')}, column {max(int(first.get('col') or 1) - max(len(near) - 1, 0), 1)}"
    return Mistake("SQL_SYNTAX", f"{what}: {detail}" if detail else what, at=at, fix="correct the SQL there")
