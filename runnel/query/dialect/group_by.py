"""Translate GROUP BY."""

from dataclasses import replace

from sqlglot import exp

from runnel.query.dialect.expressions import ExpressionTranslator
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.scope import QueryScope
from runnel.query.dialect.typed_expression import TypedExpression, Untranslatable

_SETS: dict[type[exp.Expr], str] = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}


_UNAMBIGUOUS_NODES = (
    exp.Anonymous,
    exp.Cast,
    exp.Column,
    exp.DataType,
    exp.Extract,
    exp.Identifier,
    exp.Literal,
    exp.Paren,
)
_COMMUTATIVE_FUNCTIONS = ("greatest", "least")


class GroupByTranslator:
    """Translates the GROUP BY of a SELECT.

    `keys` are the group keys that the SELECT list must write in another form: Spark groups -0.0 and 0.0 of a double
    as 0.0.
    """

    def __init__(self, select: exp.Select, scope: QueryScope, translator: ExpressionTranslator) -> None:
        self._select = select
        self._scope = scope
        self._translator = translator
        self._group: exp.Group | None = select.args.get("group")
        self.has_grouping_sets = self._group is not None and (
            any(type(entry) in _SETS for entry in self._group.expressions)
            or any(self._group.args.get(name) for name in ("rollup", "cube", "grouping_sets"))
        )
        self.keys: dict[str, TypedExpression] = self._find_zero_safe_keys()

    def translate_clause(self, columns: list[TypedExpression]) -> str:
        """Return the GROUP BY clause."""
        group = self._group
        if group is None:
            return ""
        check_arguments(group)
        if group.args.get("all"):
            raise Untranslatable("GROUP BY ALL")
        self._has_lateral_aliases = bool(self._scope.lateral_aliases)
        plain_entries = [e for e in group.expressions if type(e) not in _SETS]
        keys = [self._translate_key(e, columns) for e in plain_entries]
        sets = [e for e in group.expressions if type(e) in _SETS]
        trailing_sets = [s for name in ("rollup", "cube", "grouping_sets") for s in group.args.get(name) or ()]
        if trailing_sets:
            return self._hive_form(keys, sets, trailing_sets, columns)
        keys += [self._translate_set(grouping_set, columns) for grouping_set in sets]
        return f" GROUP BY {', '.join(keys)}"

    def _hive_form(
        self, keys: list[str], sets: list[exp.Expr], trailing_sets: list[exp.Expr], columns: list[TypedExpression]
    ) -> str:
        """Translate `a, b WITH ROLLUP` or `a, b GROUPING SETS (a)`, where the sets make the groups, not the list."""
        if sets or len(trailing_sets) != 1:
            raise Untranslatable("several kinds of grouping sets")
        if trailing_sets[0].expressions:
            return f" GROUP BY {self._translate_set(trailing_sets[0], columns)}"
        return f" GROUP BY {_SETS[type(trailing_sets[0])]} ({', '.join(keys)})"

    def _translate_set(self, node: exp.Expr, columns: list[TypedExpression]) -> str:
        entries = []
        for entry in node.expressions:
            if type(entry) in _SETS:
                raise Untranslatable("nested grouping sets")
            inner = entry.expressions if isinstance(entry, exp.Tuple) else [entry]
            inner = [e.this if isinstance(e, exp.Paren) else e for e in inner]
            if not inner and not isinstance(node, exp.GroupingSets):
                raise Untranslatable("an empty set in ROLLUP or CUBE")
            entries.append("(" + ", ".join(self._translate_key(e, columns) for e in inner) + ")")
        return f"{_SETS[type(node)]} ({', '.join(entries)})"

    def _translate_key(self, node: exp.Expr, columns: list[TypedExpression]) -> str:
        if isinstance(node, exp.Literal):
            if node.is_string or not node.this.isdigit() or not 1 <= int(node.this) <= len(columns):
                raise Untranslatable("GROUP BY a constant")
            if self._has_lateral_aliases or any(entry.is_star for entry in self._select.expressions):
                raise Untranslatable("GROUP BY a position if the list has a star or lateral aliases")
            value = columns[int(node.this) - 1]
        else:
            value = self._translate_key_expression(node)
        if self.has_grouping_sets and not all(map(_has_one_form, self._resolve_entry(node).walk())):
            raise Untranslatable("grouping sets of these expressions")
        if not value.type.is_atomic or value.is_null or value.literal is not None:
            raise Untranslatable(f"GROUP BY {value.type}")
        if value.type.is_floating and value.sql not in [key.sql for key in self.keys.values()]:
            raise Untranslatable("GROUP BY a computed double")
        return value.sql

    def _resolve_entry(self, node: exp.Expr) -> exp.Expr:
        """Return the entry of the SELECT list that a position or an alias in GROUP BY stands for, else the node."""
        entries = self._select.expressions
        if isinstance(node, exp.Literal):
            entry: exp.Expr = entries[int(node.this) - 1]
            return entry.unalias()
        aliases = {entry.alias.lower(): entry.this for entry in entries if isinstance(entry, exp.Alias)}
        return aliases.get(node.name.lower(), node) if isinstance(node, exp.Column) and not node.table else node

    def _translate_key_expression(self, node: exp.Expr) -> TypedExpression:
        outer = self._scope.outer
        boundary = outer.boundary if outer is not None else None
        crossed_before, lateral_before = len(boundary.references) if boundary else 0, len(self._scope.lateral_aliases)
        value = self._translator.translate(node, self._scope)
        if boundary and len(boundary.references) > crossed_before:
            raise Untranslatable("GROUP BY a column of the outer query")
        if self._has_lateral_aliases and len(self._scope.lateral_aliases) > lateral_before:
            raise Untranslatable("GROUP BY an alias that names another")
        return value

    def _find_zero_safe_keys(self) -> dict[str, TypedExpression]:
        """Return the double keys by the text of their column, each in a form that turns -0.0 into 0.0."""
        keys: dict[str, TypedExpression] = {}
        for node in self._group.expressions if self._group is not None else ():
            if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                continue
            try:
                value = self._translator.translate(node, replace(self._scope, keys={}))
            except Untranslatable:
                continue
            if value.type.is_floating:
                keys[node.sql("spark").lower()] = replace(value, sql=f"({value.sql} + 0)")
        return keys


def _has_one_form(node: exp.Expr) -> bool:
    """Return whether a node can be written in one way only: Spark treats `a + b` and `b + a` as the same key."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() not in _COMMUTATIVE_FUNCTIONS
    return isinstance(node, _UNAMBIGUOUS_NODES) or type(node) in (exp.Var, exp.DataTypeParam)
