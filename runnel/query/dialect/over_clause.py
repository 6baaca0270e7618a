"""The OVER clause."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.query.dialect.functions.registry import WINDOWED
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.scope import Scope
from runnel.query.dialect.typed_expression import Refused, Value

if TYPE_CHECKING:
    from runnel.query.dialect.expressions import Expressions

_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_SO_FAR = "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


@dataclass(frozen=True)
class Over:
    """An OVER clause in DuckDB's words, and what Spark writes between its brackets."""

    sql: str
    name: str | None
    ordered: bool
    framed: bool


def order(node: exp.Ordered, sql: str) -> str:
    """Return an ORDER BY entry; without a word on NULLs, Spark puts them first going up and last going down."""
    descending = bool(node.args.get("desc"))
    first = bool(node.args.get("nulls_first"))
    return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def over(node: exp.Window, scope: Scope, expressions: "Expressions", function: str) -> Over:
    """Return the OVER clause of a call of `function`."""
    node = _defined(node, scope)
    check_arguments(node)
    if node.args.get("over") not in ("OVER", None):
        raise Refused("this form of window")
    partition = [expressions.value(key, scope) for key in node.args.get("partition_by") or ()]
    ordered = node.args.get("order")
    entries = list(ordered.expressions) if ordered is not None else []
    keys = [_key(entry, scope, expressions) for entry in entries]
    frame, frame_name = _frame(node.args.get("spec"), bool(keys), function, keys)
    if frame_name is None and function in ("lag", "lead"):
        frame_name = _shift(node.this, function)
    parts = []
    if partition:
        parts.append("PARTITION BY " + ", ".join(value.sql for value in partition))
    if keys:
        parts.append("ORDER BY " + ", ".join(order(e, k.sql) for e, k in zip(entries, keys, strict=True)))
    parts.append(frame)
    sql = f" OVER ({' '.join(part for part in parts if part)})"
    return Over(sql, _name(partition, entries, keys, frame_name), bool(keys), bool(frame))


def _defined(node: exp.Window, scope: Scope) -> exp.Window:
    name = node.args.get("alias")
    if name is None:
        return node
    found = scope.windows.get(name.name.lower())
    if not isinstance(found, exp.Window) or node.args.get("partition_by") or node.args.get("order"):
        raise Refused("this form of window")
    return found


def _key(entry: exp.Expr, scope: Scope, expressions: "Expressions") -> Value:
    if not isinstance(entry, exp.Ordered):
        raise Refused("this form of ORDER BY")
    check_arguments(entry)
    value = expressions.value(entry.this, scope)
    if not value.type.atomic:
        raise Refused(f"an order of {value.type}")
    return value


def _name(partition: list[Value], entries: list[exp.Ordered], keys: list[Value], frame: str | None) -> str | None:
    if frame is None or None in [value.name for value in (*partition, *keys)]:
        return None
    parts = []
    if partition:
        parts.append("PARTITION BY " + ", ".join(str(value.name) for value in partition))
    if keys:
        parts.append("ORDER BY " + ", ".join(order(e, str(k.name)) for e, k in zip(entries, keys, strict=True)))
    return " ".join([*parts, frame])


def _frame(spec: exp.WindowSpec | None, ordered: bool, function: str, keys: list[Value]) -> tuple[str, str | None]:
    """Return the frame in DuckDB's words, and as Spark writes it."""
    if spec is None:
        if function in ("lag", "lead"):
            return "", None
        if function in WINDOWED and function not in ("first_value", "last_value", "cume_dist"):
            return "", f"ROWS {_SO_FAR}"
        return "", f"RANGE {_SO_FAR}" if ordered else _WHOLE
    if spec.args.get("exclude"):
        raise Refused("a frame with EXCLUDE")
    kind = str(spec.args["kind"]).upper()
    start = _bound(spec, "start")
    end = _bound(spec, "end") if spec.args.get("end") is not None else "CURRENT ROW"
    moving = any(char.isdigit() for char in start + end)
    if kind == "RANGE" and moving and (len(keys) != 1 or not keys[0].type.integral):
        raise Refused("a range of such values")
    if kind not in ("ROWS", "RANGE") or (moving and kind == "RANGE" and keys[0].type.kind == "bigint"):
        raise Refused("this kind of frame")
    words = f"{kind} BETWEEN {start} AND {end}"
    return words, words


def _shift(call: exp.Expr, function: str) -> str | None:
    """Return the frame of one row that Spark gives LAG and LEAD, None if the offset is not a plain number."""
    offset = call.expressions[1] if len(call.expressions) > 1 else exp.Literal.number(1)
    if not isinstance(offset, exp.Literal) or offset.is_string or not offset.this.isdigit() or not int(offset.this):
        return None
    row = f"{'-' if function == 'lag' else ''}{int(offset.this)} FOLLOWING"
    return f"ROWS BETWEEN {row} AND {row}"


def _bound(spec: exp.WindowSpec, key: str) -> str:
    value, side = spec.args[key], spec.args.get(f"{key}_side")
    if isinstance(value, str):
        return "CURRENT ROW" if value.upper() == "CURRENT ROW" else f"UNBOUNDED {str(side).upper()}"
    if isinstance(value, exp.Literal) and not value.is_string and value.this.isdigit() and int(value.this) < 1 << 31:
        return f"{value.this} {str(side).upper()}"
    raise Refused("a frame of such an extent")
