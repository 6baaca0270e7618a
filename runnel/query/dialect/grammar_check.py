"""Check that the tree is the one that Spark would build from the same words.

sqlglot and Spark bind some operators differently. A tree in which every operator without brackets binds more tightly
than the one around it has only one reading; any other is refused.
"""

from sqlglot import exp

from runnel.query.dialect.parser import WRITTEN
from runnel.query.dialect.typed_expression import Refused

_LEVELS: dict[type[exp.Expr], int] = {
    exp.Neg: 1,
    exp.BitwiseNot: 1,
    exp.Mul: 2,
    exp.Div: 2,
    exp.IntDiv: 2,
    exp.Mod: 2,
    exp.Add: 3,
    exp.Sub: 3,
    exp.DPipe: 3,
    exp.BitwiseAnd: 5,
    exp.BitwiseXor: 6,
    exp.BitwiseOr: 7,
    exp.EQ: 8,
    exp.NEQ: 8,
    exp.NullSafeEQ: 8,
    exp.LT: 8,
    exp.LTE: 8,
    exp.GT: 8,
    exp.GTE: 8,
    exp.Between: 9,
    exp.In: 9,
    exp.Is: 9,
    exp.Like: 9,
    exp.Escape: 9,
    exp.RegexpLike: 9,
    exp.NullSafeNEQ: 9,
    exp.Not: 10,
    exp.And: 11,
    exp.Or: 12,
}
_COMPARISON, _PREDICATE, _NOT = 8, 9, 10
_ARGUMENTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Alias: frozenset({"alias"}),
    exp.Between: frozenset({"low", "high"}),
    exp.CTE: frozenset({"alias"}),
    exp.Case: frozenset({"ifs", "default"}),
    exp.Cast: frozenset({"to"}),
    exp.Column: frozenset({"table", "db", "catalog"}),
    exp.DPipe: frozenset({"safe"}),
    exp.Div: frozenset({"typed", "safe"}),
    exp.Group: frozenset({"all", "rollup", "cube", "grouping_sets"}),
    exp.Identifier: frozenset({"quoted"}),
    exp.If: frozenset({"true"}),
    exp.In: frozenset({"query"}),
    exp.Interval: frozenset({"unit"}),
    exp.Join: frozenset({"side", "kind", "on", "using"}),
    exp.Lateral: frozenset({"view", "outer", "alias"}),
    exp.Like: frozenset({"negate"}),
    exp.Literal: frozenset({"is_string"}),
    exp.Ordered: frozenset({"desc", "nulls_first"}),
    exp.Star: frozenset({"except_"}),
    exp.StrPosition: frozenset({"substr"}),
    exp.Subquery: frozenset({"alias", "with_", "order", "limit", "offset"}),
    exp.Substring: frozenset({"start", "length"}),
    exp.Table: frozenset({"db", "alias"}),
    exp.TableAlias: frozenset({"columns"}),
    exp.Trim: frozenset({"position"}),
    exp.TryCast: frozenset({"to", "safe"}),
    exp.Values: frozenset({"alias", "order", "limit", "offset"}),
    exp.Window: frozenset({"partition_by", "order", "spec", "alias", "over"}),
}
_USUAL = frozenset({"this", "expression", "expressions"})


def check_arguments(node: exp.Expr) -> None:
    """Refuse a node that says more than its rule looks at: a newer sqlglot may put a NOT or a mode there."""
    known = _ARGUMENTS.get(type(node), frozenset())
    for key, value in node.args.items():
        if key not in _USUAL and key not in known and value is not None and value is not False and value != []:
            raise Refused(f"{type(node).__name__} with {key}")


def check_precedence(node: exp.Expr) -> None:
    """Refuse `node` if an operand of it would belong elsewhere in Spark."""
    if isinstance(node, exp.Cast) and WRITTEN not in node.meta:
        # `a + b :: int`: Spark casts what stands right before the colons.
        _most(node.this, 0)
    own = _LEVELS.get(type(node))
    if own is None:
        return
    if own == 1 or own == _NOT:
        _most(node.this, own)
    elif own == _PREDICATE:
        # The left operand of ESCAPE is its LIKE.
        _most(node.this, _PREDICATE if isinstance(node, exp.Escape) else _COMPARISON)
        for key in ("expression", "low", "high"):
            operand = node.args.get(key)
            if isinstance(operand, exp.Expr):
                _most(operand, _COMPARISON)
    else:
        if own == _COMPARISON and isinstance(node.this, exp.NullSafeEQ):
            # `a IS NOT DISTINCT FROM b = c` is no chain from the left, `a <=> b = c` is; the tree is the same.
            raise Refused("operators that need brackets to be read in one way")
        _most(node.this, own)
        _most(node.args["expression"], own - 1)


def _most(operand: exp.Expr, level: int) -> None:
    if _LEVELS.get(type(operand), 0) > level:
        raise Refused("operators that need brackets to be read in one way")
