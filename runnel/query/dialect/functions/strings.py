"""Rules for functions on strings."""

from runnel.declare.model.column_types import array_type
from runnel.query.data_types import BOOLEAN, INT, STRING
from runnel.query.dialect.casts import cast_to_string
from runnel.query.dialect.functions import patterns
from runnel.query.dialect.functions.registry import (
    FunctionCall,
    require_int_literal,
    require_kind,
    require_string_literal,
    rule,
)
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable, fail_with, quote_string

_MAX_LENGTH = 1 << 30


def _cast_int(sql: str) -> str:
    return f"CAST({sql} AS INTEGER)"


def fail_beyond_ascii(subject: str, sql: str) -> str:
    """Return `sql` that fails for non-ASCII strings, because the engines' Unicode tables differ."""
    return f"(CASE WHEN strlen({subject}) <> length({subject}) THEN {fail_with('beyond ASCII')} ELSE {sql} END)"


@rule("upper", "ucase", "lower", "lcase", "reverse")
def _upper_lower_reverse(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    subject = require_kind(value, "string")
    function = {"ucase": "upper", "lcase": "lower"}.get(call.name, call.name)
    return call.result(fail_beyond_ascii(subject, f"{function}({subject})"), STRING, value)


@rule("length", "char_length", "character_length", "len")
def _length(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    return call.result(_cast_int(f"length({require_kind(value, 'string')})"), INT, value)


@rule("octet_length", "bit_length")
def _bytes_length(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    factor = 8 if call.name == "bit_length" else 1
    return call.result(_cast_int(f"strlen({require_kind(value, 'string')}) * {factor}"), INT, value)


@rule("substring", "substr")
def _substring(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(2, 3)
    subject = require_kind(values[0], "string")
    start = require_int_literal(values[1], "a start")
    count = require_int_literal(values[2], "a length") if len(values) == 3 else None
    name_arguments = values if count is not None else [*values, "2147483647"]
    return call.result(substring_sql(subject, start, count), STRING, *name_arguments)


def substring_sql(subject: str, start: int, count: int | None) -> str:
    """Return the SQL of a substring; a negative start counts from the end, and may lie before the beginning."""
    if count is not None and (count < 0 or count > _MAX_LENGTH):
        raise Untranslatable("substring with a negative or very large length")
    tail = "" if count is None else f", {count}"
    if start >= 0:
        return f"substring({subject}, {max(start, 1)}{tail})"
    from_end = -start
    start_inside = f"substring({subject}, length({subject}) - {from_end - 1}{tail})"
    if count is None:
        start_before = subject
    else:
        start_before = f"substring({subject}, 1, greatest({count} - ({from_end} - length({subject})), 0))"
    return f"(CASE WHEN length({subject}) >= {from_end} THEN {start_inside} ELSE {start_before} END)"


@rule("left", "right")
def _left_right(call: FunctionCall) -> TypedExpression:
    value, count_value = call.translate_arguments(2)
    count = require_int_literal(count_value, "a length")
    if count < 0:
        raise Untranslatable(f"{call.name} with a negative length")
    return call.result(f"{call.name}({require_kind(value, 'string')}, {count})", STRING, value, count_value)


@rule("trim", "ltrim", "rtrim", "btrim")
def _trim(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    function = {"btrim": "trim"}.get(call.name, call.name)
    return call.result(f"{function}({require_kind(value, 'string')}, ' ')", STRING, value)


@rule("replace")
def _replace(call: FunctionCall) -> TypedExpression:
    value, old, new = call.translate_arguments(3)
    if not require_string_literal(old, "a search"):
        raise Untranslatable("an empty search")
    return call.result(
        f"replace({require_kind(value, 'string')}, {old.sql}, {require_kind(new, 'string')})", STRING, value, old, new
    )


@rule("concat")
def _concat(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(1, 99)
    return call.result(concat_strings(values), STRING, *values)


def concat_strings(values: list[TypedExpression]) -> str:
    """Return the SQL of concatenated strings; NULL if any is NULL."""
    if not any(value.type.kind == "string" for value in values):
        raise Untranslatable("concat without strings")
    return "(" + " || ".join("CAST(NULL AS VARCHAR)" if v.is_null else cast_to_string(v) for v in values) + ")"


@rule("concat_ws")
def _concat_ws(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(2, 99)
    parts = ["CAST(NULL AS VARCHAR)" if v.is_null else cast_to_string(v) for v in values]
    return call.result(f"concat_ws({', '.join(parts)})", STRING, *values)


@rule("instr")
def _instr(call: FunctionCall) -> TypedExpression:
    value, searched = call.translate_arguments(2)
    return call.result(
        _cast_int(f"instr({require_kind(value, 'string')}, {require_kind(searched, 'string')})"), INT, value, searched
    )


@rule("locate", "position")
def _locate(call: FunctionCall) -> TypedExpression:
    searched, value = call.translate_arguments(2)
    sql = _cast_int(f"instr({require_kind(value, 'string')}, {require_kind(searched, 'string')})")
    return call.result(sql, INT, searched, value, "1", name=call.name)


@rule("lpad", "rpad")
def _pad(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(2, 3)
    size = require_int_literal(values[1], "a length")
    fill = require_string_literal(values[2], "a filling") if len(values) == 3 else " "
    if size < 0 or not fill:
        raise Untranslatable(f"{call.name} with a negative length or without characters to fill with")
    name_arguments = values if len(values) == 3 else [*values, " "]
    return call.result(
        f"{call.name}({require_kind(values[0], 'string')}, {size}, {quote_string(fill)})", STRING, *name_arguments
    )


@rule("repeat")
def _repeat(call: FunctionCall) -> TypedExpression:
    value, times = call.translate_arguments(2)
    if not 0 <= require_int_literal(times, "a count") <= 1000:
        raise Untranslatable("repeat with a negative or very large count")
    return call.result(f"repeat({require_kind(value, 'string')}, {times.literal})", STRING, value, times)


@rule("startswith", "endswith", "contains")
def _contains(call: FunctionCall) -> TypedExpression:
    value, searched = call.translate_arguments(2)
    function = {"startswith": "starts_with", "endswith": "ends_with"}.get(call.name, call.name)
    return call.result(
        f"{function}({require_kind(value, 'string')}, {require_kind(searched, 'string')})", BOOLEAN, value, searched
    )


@rule("split")
def _split(call: FunctionCall) -> TypedExpression:
    value, pattern = call.translate_arguments(2)
    plain = require_string_literal(pattern, "a pattern").replace("\\.", "\0").replace("\\|", "\1")
    if not patterns.is_plain(plain):
        raise Untranslatable("split by a regular expression")
    separator = quote_string(plain.replace("\0", ".").replace("\1", "|"))
    return call.result(
        f"string_split({require_kind(value, 'string')}, {separator})", array_type(STRING), value, pattern, "-1"
    )


@rule("split_part")
def _split_part(call: FunctionCall) -> TypedExpression:
    value, separator, number = call.translate_arguments(3)
    if require_int_literal(number, "a part") < 1 or not require_string_literal(separator, "a separator"):
        raise Untranslatable("split_part with a part before the first, or without a separator")
    sql = f"split_part({require_kind(value, 'string')}, {separator.sql}, {number.literal})"
    return call.result(sql, STRING, value, separator, number)


@rule("translate")
def _translate(call: FunctionCall) -> TypedExpression:
    value, old, new = call.translate_arguments(3)
    letters = require_string_literal(old, "letters")
    require_string_literal(new, "letters")
    if len(set(letters)) != len(letters):
        raise Untranslatable("letters that repeat")
    return call.result(f"translate({require_kind(value, 'string')}, {old.sql}, {new.sql})", STRING, value, old, new)


@rule("md5", "sha1", "sha")
def _digest(call: FunctionCall) -> TypedExpression:
    (value,) = call.translate_arguments(1)
    function = {"sha": "sha1"}.get(call.name, call.name)
    return call.result(f"{function}({require_kind(value, 'string')})", STRING, value)


@rule("sha2")
def _sha2(call: FunctionCall) -> TypedExpression:
    value, bits = call.translate_arguments(2)
    if require_int_literal(bits, "a size") not in (0, 256):
        raise Untranslatable("sha2 of this size")
    return call.result(f"sha256({require_kind(value, 'string')})", STRING, value, bits)


@rule("rlike", "regexp", "regexp_like")
def _rlike(call: FunctionCall) -> TypedExpression:
    value, pattern = call.translate_arguments(2)
    return translate_rlike(
        value, pattern, {"rlike": "RLIKE", "regexp": "REGEXP", "regexp_like": "REGEXP_LIKE"}[call.name]
    )


def translate_rlike(value: TypedExpression, pattern: TypedExpression, name: str = "RLIKE") -> TypedExpression:
    """Return `value RLIKE pattern`."""
    regex = patterns.translate_regex(require_string_literal(pattern, "a pattern"))
    spark_name = None if value.name is None else f"{name}({value.name}, {pattern.name})"
    return TypedExpression(
        f"regexp_matches({require_kind(value, 'string')}, {quote_string(regex)})", BOOLEAN, spark_name
    )


def translate_like(value: TypedExpression, pattern: TypedExpression, escape: str = "\\") -> TypedExpression:
    """Return `value LIKE pattern`."""
    like_pattern, has_escapes = patterns.check_like(require_string_literal(pattern, "a pattern"), escape)
    spark_name = None if value.name is None else f"{value.name} LIKE {like_pattern}"
    if spark_name is not None and escape != "\\":
        spark_name += f" ESCAPE '{escape}'"
    tail = f" ESCAPE {quote_string(escape)}" if has_escapes else ""
    return TypedExpression(
        f"({require_kind(value, 'string')} LIKE {quote_string(like_pattern)}{tail})", BOOLEAN, spark_name
    )


@rule("regexp_replace")
def _regexp_replace(call: FunctionCall) -> TypedExpression:
    value, pattern, new = call.translate_arguments(3)
    regex = patterns.translate_regex(require_string_literal(pattern, "a pattern"), consuming=True)
    replacement = require_string_literal(new, "a replacement")
    if not regex or "$" in replacement or "\\" in replacement or patterns.can_match_empty(regex):
        raise Untranslatable("regexp_replace with this pattern or replacement")
    sql = f"regexp_replace({require_kind(value, 'string')}, {quote_string(regex)}, {quote_string(replacement)}, 'g')"
    return call.result(sql, STRING, value, pattern, new, "1")


@rule("regexp_extract")
def _regexp_extract(call: FunctionCall) -> TypedExpression:
    values = call.translate_arguments(2, 3)
    pattern_text = require_string_literal(values[1], "a pattern")
    index = require_int_literal(values[2], "a group") if len(values) == 3 else 1
    if not 0 <= index <= patterns.count_groups(pattern_text) or (index and patterns.has_repeated_group(pattern_text)):
        raise Untranslatable("a group that the pattern lacks or repeats")
    sql = (
        f"regexp_extract({require_kind(values[0], 'string')}, "
        f"{quote_string(patterns.translate_regex(pattern_text, consuming=True))}, {index})"
    )
    return call.result(sql, STRING, values[0], values[1], str(index))
