"""Functions on strings."""

from runnel.query.data_types import BOOLEAN, INT, STRING, array
from runnel.query.dialect.casts import to_string
from runnel.query.dialect.functions import patterns
from runnel.query.dialect.functions.registry import Call, literal_int, literal_text, rule, want
from runnel.query.dialect.typed_expression import Refused, Value, failing, text

_MOST = 1 << 30


def _int(sql: str) -> str:
    return f"CAST({sql} AS INTEGER)"


def only_ascii(subject: str, sql: str) -> str:
    """Return `sql`, failing for strings beyond ASCII, where the engines' tables of letters differ."""
    return f"(CASE WHEN strlen({subject}) <> length({subject}) THEN {failing('beyond ASCII')} ELSE {sql} END)"


@rule("upper", "ucase", "lower", "lcase", "reverse")
def _change_letters(call: Call) -> Value:
    (value,) = call.values(1)
    subject = want(value, "string")
    function = {"ucase": "upper", "lcase": "lower"}.get(call.name, call.name)
    return call.result(only_ascii(subject, f"{function}({subject})"), STRING, value)


@rule("length", "char_length", "character_length", "len")
def _length(call: Call) -> Value:
    (value,) = call.values(1)
    return call.result(_int(f"length({want(value, 'string')})"), INT, value)


@rule("octet_length", "bit_length")
def _bytes_length(call: Call) -> Value:
    (value,) = call.values(1)
    factor = 8 if call.name == "bit_length" else 1
    return call.result(_int(f"strlen({want(value, 'string')}) * {factor}"), INT, value)


@rule("substring", "substr")
def _substring(call: Call) -> Value:
    values = call.values(2, 3)
    subject = want(values[0], "string")
    start = literal_int(values[1], "a start")
    count = literal_int(values[2], "a length") if len(values) == 3 else None
    shown = values if count is not None or call.name == "substr" else [*values, "2147483647"]
    if call.name == "substr" and count is None:
        shown = [*values, "2147483647"]
    return call.result(cut(subject, start, count), STRING, *shown)


def cut(subject: str, start: int, count: int | None) -> str:
    """Return a part of a string; a negative start counts from the end, and may lie before the beginning."""
    if count is not None and (count < 0 or count > _MOST):
        raise Refused("such a length")
    tail = "" if count is None else f", {count}"
    if start >= 0:
        return f"substring({subject}, {max(start, 1)}{tail})"
    back = -start
    inside = f"substring({subject}, length({subject}) - {back - 1}{tail})"
    if count is None:
        before = subject
    else:
        before = f"substring({subject}, 1, greatest({count} - ({back} - length({subject})), 0))"
    return f"(CASE WHEN length({subject}) >= {back} THEN {inside} ELSE {before} END)"


@rule("left", "right")
def _side(call: Call) -> Value:
    value, many = call.values(2)
    count = literal_int(many, "a length")
    if count < 0:
        raise Refused("such a length")
    return call.result(f"{call.name}({want(value, 'string')}, {count})", STRING, value, many)


@rule("trim", "ltrim", "rtrim", "btrim")
def _trim(call: Call) -> Value:
    (value,) = call.values(1)
    function = {"btrim": "trim"}.get(call.name, call.name)
    return call.result(f"{function}({want(value, 'string')}, ' ')", STRING, value)


@rule("replace")
def _replace(call: Call) -> Value:
    value, old, new = call.values(3)
    if not literal_text(old, "a search"):
        raise Refused("an empty search")
    return call.result(f"replace({want(value, 'string')}, {old.sql}, {want(new, 'string')})", STRING, value, old, new)


@rule("concat")
def _concat(call: Call) -> Value:
    values = call.values(1, 99)
    return call.result(joined(values), STRING, *values)


def joined(values: list[Value]) -> str:
    """Return strings put together; NULL if any is."""
    if not any(value.type.kind == "string" for value in values):
        raise Refused("concat without strings")
    return "(" + " || ".join("CAST(NULL AS VARCHAR)" if v.is_null else to_string(v) for v in values) + ")"


@rule("concat_ws")
def _concat_ws(call: Call) -> Value:
    values = call.values(2, 99)
    parts = ["CAST(NULL AS VARCHAR)" if v.is_null else to_string(v) for v in values]
    return call.result(f"concat_ws({', '.join(parts)})", STRING, *values)


@rule("instr")
def _instr(call: Call) -> Value:
    value, part = call.values(2)
    return call.result(_int(f"instr({want(value, 'string')}, {want(part, 'string')})"), INT, value, part)


@rule("locate", "position")
def _locate(call: Call) -> Value:
    part, value = call.values(2)
    sql = _int(f"instr({want(value, 'string')}, {want(part, 'string')})")
    return call.result(sql, INT, part, value, "1", name=call.name)


@rule("lpad", "rpad")
def _pad(call: Call) -> Value:
    values = call.values(2, 3)
    size = literal_int(values[1], "a length")
    fill = literal_text(values[2], "a filling") if len(values) == 3 else " "
    if size < 0 or not fill:
        raise Refused("such a padding")
    shown = values if len(values) == 3 else [*values, " "]
    return call.result(f"{call.name}({want(values[0], 'string')}, {size}, {text(fill)})", STRING, *shown)


@rule("repeat")
def _repeat(call: Call) -> Value:
    value, times = call.values(2)
    if not 0 <= literal_int(times, "a count") <= 1000:
        raise Refused("such a count")
    return call.result(f"repeat({want(value, 'string')}, {times.literal})", STRING, value, times)


@rule("startswith", "endswith", "contains")
def _part_of(call: Call) -> Value:
    value, part = call.values(2)
    function = {"startswith": "starts_with", "endswith": "ends_with"}.get(call.name, call.name)
    return call.result(f"{function}({want(value, 'string')}, {want(part, 'string')})", BOOLEAN, value, part)


@rule("split")
def _split(call: Call) -> Value:
    value, pattern = call.values(2)
    plain = literal_text(pattern, "a pattern").replace("\\.", "\0").replace("\\|", "\1")
    if not patterns.is_plain(plain):
        raise Refused("split by a regular expression")
    by = text(plain.replace("\0", ".").replace("\1", "|"))
    return call.result(f"string_split({want(value, 'string')}, {by})", array(STRING), value, pattern, "-1")


@rule("split_part")
def _split_part(call: Call) -> Value:
    value, by, number = call.values(3)
    if literal_int(number, "a part") < 1 or not literal_text(by, "a separator"):
        raise Refused("such a part")
    sql = f"split_part({want(value, 'string')}, {by.sql}, {number.literal})"
    return call.result(sql, STRING, value, by, number)


@rule("translate")
def _translate(call: Call) -> Value:
    value, old, new = call.values(3)
    letters = literal_text(old, "letters")
    literal_text(new, "letters")
    if len(set(letters)) != len(letters):
        raise Refused("letters that repeat")
    return call.result(f"translate({want(value, 'string')}, {old.sql}, {new.sql})", STRING, value, old, new)


@rule("md5", "sha1", "sha")
def _digest(call: Call) -> Value:
    (value,) = call.values(1)
    function = {"sha": "sha1"}.get(call.name, call.name)
    return call.result(f"{function}({want(value, 'string')})", STRING, value)


@rule("sha2")
def _sha2(call: Call) -> Value:
    value, bits = call.values(2)
    if literal_int(bits, "a size") not in (0, 256):
        raise Refused("sha2 of this size")
    return call.result(f"sha256({want(value, 'string')})", STRING, value, bits)


@rule("rlike", "regexp", "regexp_like")
def _rlike(call: Call) -> Value:
    value, pattern = call.values(2)
    return matching(value, pattern, {"rlike": "RLIKE", "regexp": "REGEXP", "regexp_like": "REGEXP_LIKE"}[call.name])


def matching(value: Value, pattern: Value, name: str = "RLIKE") -> Value:
    """Return `value RLIKE pattern`."""
    form = patterns.regex(literal_text(pattern, "a pattern"))
    own = None if value.name is None else f"{name}({value.name}, {pattern.name})"
    return Value(f"regexp_matches({want(value, 'string')}, {text(form)})", BOOLEAN, own)


def like(value: Value, pattern: Value, escape: str = "\\") -> Value:
    """Return `value LIKE pattern`."""
    form, escaped = patterns.like(literal_text(pattern, "a pattern"), escape)
    own = None if value.name is None else f"{value.name} LIKE {form}"
    if own is not None and escape != "\\":
        own += f" ESCAPE '{escape}'"
    tail = f" ESCAPE {text(escape)}" if escaped else ""
    return Value(f"({want(value, 'string')} LIKE {text(form)}{tail})", BOOLEAN, own)


@rule("regexp_replace")
def _regexp_replace(call: Call) -> Value:
    value, pattern, new = call.values(3)
    form = patterns.regex(literal_text(pattern, "a pattern"), consuming=True)
    filling = literal_text(new, "a replacement")
    if not form or "$" in filling or "\\" in filling or patterns.may_be_empty(form):
        raise Refused("such a replacement")
    sql = f"regexp_replace({want(value, 'string')}, {text(form)}, {text(filling)}, 'g')"
    return call.result(sql, STRING, value, pattern, new, "1")


@rule("regexp_extract")
def _regexp_extract(call: Call) -> Value:
    values = call.values(2, 3)
    written = literal_text(values[1], "a pattern")
    index = literal_int(values[2], "a group") if len(values) == 3 else 1
    if not 0 <= index <= patterns.groups(written) or (index and patterns.repeats_groups(written)):
        raise Refused("a group that the pattern lacks or repeats")
    sql = f"regexp_extract({want(values[0], 'string')}, {text(patterns.regex(written, consuming=True))}, {index})"
    return call.result(sql, STRING, values[0], values[1], str(index))
