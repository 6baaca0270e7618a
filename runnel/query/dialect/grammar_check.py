"""Check that sqlglot's tree is the one that Spark would build from the same text.

sqlglot and Spark differ in the precedence of some operators. A tree in which every operator without brackets binds
more tightly than the one around it is unambiguous; any other tree is refused.
"""

from sqlglot import exp

from runnel.query.dialect.parser import SPELLING_KEY
from runnel.query.dialect.typed_expression import Untranslatable

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
_RULE_ARGUMENTS: dict[type[exp.Expr], frozenset[str]] = {
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
_COMMON_ARGUMENTS = frozenset({"this", "expression", "expressions"})


def check_arguments(node: exp.Expr) -> None:
    """Refuse a node with arguments that its rule ignores: a newer sqlglot may put a NOT or a mode there."""
    rule_arguments = _RULE_ARGUMENTS.get(type(node), frozenset())
    for key, value in node.args.items():
        if (
            key not in _COMMON_ARGUMENTS
            and key not in rule_arguments
            and value is not None
            and value is not False
            and value != []
        ):
            raise Untranslatable(f"{type(node).__name__} with {key}")


def check_precedence(node: exp.Expr) -> None:
    """Refuse `node` if Spark would parse one of its operands differently."""
    if isinstance(node, exp.Cast) and SPELLING_KEY not in node.meta:
        # `a + b :: int`: Spark casts what stands right before the colons.
        _check_operand_level(node.this, 0)
    node_level = _LEVELS.get(type(node))
    if node_level is None:
        return
    if node_level == 1 or node_level == _NOT:
        _check_operand_level(node.this, node_level)
    elif node_level == _PREDICATE:
        # The left operand of ESCAPE is its LIKE.
        _check_operand_level(node.this, _PREDICATE if isinstance(node, exp.Escape) else _COMPARISON)
        for key in ("expression", "low", "high"):
            operand = node.args.get(key)
            if isinstance(operand, exp.Expr):
                _check_operand_level(operand, _COMPARISON)
    else:
        if node_level == _COMPARISON and isinstance(node.this, exp.NullSafeEQ):
            # `a IS NOT DISTINCT FROM b = c` is no chain from the left, `a <=> b = c` is; the tree is the same.
            raise Untranslatable("operators that need brackets to be read in one way")
        _check_operand_level(node.this, node_level)
        _check_operand_level(node.args["expression"], node_level - 1)


def _check_operand_level(operand: exp.Expr, max_level: int) -> None:
    if _LEVELS.get(type(operand), 0) > max_level:
        raise Untranslatable("operators that need brackets to be read in one way")
