"""Translate the OVER clause of window functions."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.query.dialect.functions.registry import WINDOW_FUNCTIONS
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.scope import QueryScope
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable

if TYPE_CHECKING:
    from runnel.query.dialect.expressions import ExpressionTranslator

_WHOLE_FRAME = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_RUNNING_FRAME = "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


@dataclass(frozen=True)
class OverClause:
    """An OVER clause as DuckDB SQL, and the text that Spark puts between its brackets in column names."""

    sql: str
    name: str | None
    ordered: bool
    framed: bool


def format_order_entry(node: exp.Ordered, sql: str) -> str:
    """Return an ORDER BY entry; by default Spark puts NULLs first in ascending and last in descending order."""
    descending = bool(node.args.get("desc"))
    nulls_first = bool(node.args.get("nulls_first"))
    return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def translate_over_clause(
    node: exp.Window, scope: QueryScope, translator: "ExpressionTranslator", function: str
) -> OverClause:
    """Return the OVER clause of a call of `function`."""
    node = _resolve_window(node, scope)
    check_arguments(node)
    if node.args.get("over") not in ("OVER", None):
        raise Untranslatable("this form of window")
    partition = [translator.translate(key, scope) for key in node.args.get("partition_by") or ()]
    order_clause = node.args.get("order")
    entries = list(order_clause.expressions) if order_clause is not None else []
    keys = [_translate_order_key(entry, scope, translator) for entry in entries]
    frame, frame_name = _translate_frame(node.args.get("spec"), bool(keys), function, keys)
    if frame_name is None and function in ("lag", "lead"):
        frame_name = _format_shift_frame(node.this, function)
    parts = []
    if partition:
        parts.append("PARTITION BY " + ", ".join(value.sql for value in partition))
    if keys:
        parts.append("ORDER BY " + ", ".join(format_order_entry(e, k.sql) for e, k in zip(entries, keys, strict=True)))
    parts.append(frame)
    sql = f" OVER ({' '.join(part for part in parts if part)})"
    return OverClause(sql, _format_name(partition, entries, keys, frame_name), bool(keys), bool(frame))


def _resolve_window(node: exp.Window, scope: QueryScope) -> exp.Window:
    name = node.args.get("alias")
    if name is None:
        return node
    window = scope.windows.get(name.name.lower())
    if not isinstance(window, exp.Window) or node.args.get("partition_by") or node.args.get("order"):
        raise Untranslatable("this form of window")
    return window


def _translate_order_key(entry: exp.Expr, scope: QueryScope, translator: "ExpressionTranslator") -> TypedExpression:
    if not isinstance(entry, exp.Ordered):
        raise Untranslatable("this form of ORDER BY")
    check_arguments(entry)
    value = translator.translate(entry.this, scope)
    if not value.type.is_atomic:
        raise Untranslatable(f"an order of {value.type}")
    return value


def _format_name(
    partition: list[TypedExpression], entries: list[exp.Ordered], keys: list[TypedExpression], frame: str | None
) -> str | None:
    if frame is None or None in [value.name for value in (*partition, *keys)]:
        return None
    parts = []
    if partition:
        parts.append("PARTITION BY " + ", ".join(str(value.name) for value in partition))
    if keys:
        parts.append(
            "ORDER BY " + ", ".join(format_order_entry(e, str(k.name)) for e, k in zip(entries, keys, strict=True))
        )
    return " ".join([*parts, frame])


def _translate_frame(
    spec: exp.WindowSpec | None, ordered: bool, function: str, keys: list[TypedExpression]
) -> tuple[str, str | None]:
    """Return the frame as DuckDB SQL, and as Spark writes it in column names."""
    if spec is None:
        if function in ("lag", "lead"):
            return "", None
        if function in WINDOW_FUNCTIONS and function not in ("first_value", "last_value", "cume_dist"):
            return "", f"ROWS {_RUNNING_FRAME}"
        return "", f"RANGE {_RUNNING_FRAME}" if ordered else _WHOLE_FRAME
    if spec.args.get("exclude"):
        raise Untranslatable("a frame with EXCLUDE")
    kind = str(spec.args["kind"]).upper()
    start = _translate_bound(spec, "start")
    end = _translate_bound(spec, "end") if spec.args.get("end") is not None else "CURRENT ROW"
    has_offset = any(char.isdigit() for char in start + end)
    if kind == "RANGE" and has_offset and (len(keys) != 1 or not keys[0].type.is_integral):
        raise Untranslatable("RANGE over several columns, or over a column that is not an integer")
    if kind not in ("ROWS", "RANGE") or (has_offset and kind == "RANGE" and keys[0].type.kind == "bigint"):
        raise Untranslatable("this kind of frame")
    frame_sql = f"{kind} BETWEEN {start} AND {end}"
    return frame_sql, frame_sql


def _format_shift_frame(call: exp.Expr, function: str) -> str | None:
    """Return the one-row frame that Spark gives LAG and LEAD; None if the offset is not a plain number."""
    offset = call.expressions[1] if len(call.expressions) > 1 else exp.Literal.number(1)
    if not isinstance(offset, exp.Literal) or offset.is_string or not offset.this.isdigit() or not int(offset.this):
        return None
    row = f"{'-' if function == 'lag' else ''}{int(offset.this)} FOLLOWING"
    return f"ROWS BETWEEN {row} AND {row}"


def _translate_bound(spec: exp.WindowSpec, key: str) -> str:
    value, side = spec.args[key], spec.args.get(f"{key}_side")
    if isinstance(value, str):
        return "CURRENT ROW" if value.upper() == "CURRENT ROW" else f"UNBOUNDED {str(side).upper()}"
    if isinstance(value, exp.Literal) and not value.is_string and value.this.isdigit() and int(value.this) < 1 << 31:
        return f"{value.this} {str(side).upper()}"
    raise Untranslatable("a window frame with this bound")
