"""GROUP BY."""

from dataclasses import replace

from sqlglot import exp

from runnel.query.dialect.expressions import Expressions
from runnel.query.dialect.grammar_check import check_arguments
from runnel.query.dialect.scope import Scope
from runnel.query.dialect.typed_expression import Refused, Value

_SETS: dict[type[exp.Expr], str] = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}


_ONE_FORM = (exp.Anonymous, exp.Cast, exp.Column, exp.DataType, exp.Extract, exp.Identifier, exp.Literal, exp.Paren)
_ANY_ORDER = ("greatest", "least")


class Grouping:
    """The GROUP BY of a SELECT.

    `keys` are those group keys that the SELECT list must name in another form: Spark groups both zeros of a double as
    the plain one.
    """

    def __init__(self, select: exp.Select, scope: Scope, expressions: Expressions) -> None:
        self._select = select
        self._scope = scope
        self._expressions = expressions
        self._group: exp.Group | None = select.args.get("group")
        self.has_sets = self._group is not None and (
            any(type(entry) in _SETS for entry in self._group.expressions)
            or any(self._group.args.get(name) for name in ("rollup", "cube", "grouping_sets"))
        )
        self.keys: dict[str, Value] = self._plain_zeros()

    def clause(self, columns: list[Value]) -> str:
        """Return the GROUP BY clause."""
        group = self._group
        if group is None:
            return ""
        check_arguments(group)
        if group.args.get("all"):
            raise Refused("GROUP BY ALL")
        self._lateral = bool(self._scope.lateral)
        plain = [e for e in group.expressions if type(e) not in _SETS]
        keys = [self._key(e, columns) for e in plain]
        sets = [e for e in group.expressions if type(e) in _SETS]
        after = [s for name in ("rollup", "cube", "grouping_sets") for s in group.args.get(name) or ()]
        if after:
            return self._hive_form(keys, sets, after, columns)
        keys += [self._set(one, columns) for one in sets]
        return f" GROUP BY {', '.join(keys)}"

    def _hive_form(self, keys: list[str], sets: list[exp.Expr], after: list[exp.Expr], columns: list[Value]) -> str:
        """Return `a, b WITH ROLLUP` or `a, b GROUPING SETS (a)`, in which the sets decide and not the list."""
        if sets or len(after) != 1:
            raise Refused("several kinds of grouping sets")
        if after[0].expressions:
            return f" GROUP BY {self._set(after[0], columns)}"
        return f" GROUP BY {_SETS[type(after[0])]} ({', '.join(keys)})"

    def _set(self, node: exp.Expr, columns: list[Value]) -> str:
        entries = []
        for entry in node.expressions:
            if type(entry) in _SETS:
                raise Refused("nested grouping sets")
            inner = entry.expressions if isinstance(entry, exp.Tuple) else [entry]
            inner = [e.this if isinstance(e, exp.Paren) else e for e in inner]
            if not inner and not isinstance(node, exp.GroupingSets):
                raise Refused("an empty set in ROLLUP or CUBE")
            entries.append("(" + ", ".join(self._key(e, columns) for e in inner) + ")")
        return f"{_SETS[type(node)]} ({', '.join(entries)})"

    def _key(self, node: exp.Expr, columns: list[Value]) -> str:
        if isinstance(node, exp.Literal):
            if node.is_string or not node.this.isdigit() or not 1 <= int(node.this) <= len(columns):
                raise Refused("GROUP BY a constant")
            if self._lateral or any(entry.is_star for entry in self._select.expressions):
                raise Refused("GROUP BY a position in such a list")
            value = columns[int(node.this) - 1]
        else:
            value = self._named(node)
        if self.has_sets and not all(map(_has_one_form, self._meant(node).walk())):
            raise Refused("grouping sets of such expressions")
        if not value.type.atomic or value.is_null or value.literal is not None:
            raise Refused(f"GROUP BY {value.type}")
        if value.type.floating and value.sql not in [key.sql for key in self.keys.values()]:
            raise Refused("GROUP BY a computed double")
        return value.sql

    def _meant(self, node: exp.Expr) -> exp.Expr:
        """Return the entry of the SELECT list that a position or an alias in GROUP BY stands for, else the node."""
        entries = self._select.expressions
        if isinstance(node, exp.Literal):
            entry: exp.Expr = entries[int(node.this) - 1]
            return entry.unalias()
        aliases = {entry.alias.lower(): entry.this for entry in entries if isinstance(entry, exp.Alias)}
        return aliases.get(node.name.lower(), node) if isinstance(node, exp.Column) and not node.table else node

    def _named(self, node: exp.Expr) -> Value:
        outer = self._scope.outer
        border = outer.border if outer is not None else None
        crossed, named = len(border.references) if border else 0, len(self._scope.lateral)
        value = self._expressions.value(node, self._scope)
        if border and len(border.references) > crossed:
            raise Refused("GROUP BY a column of the query around")
        if self._lateral and len(self._scope.lateral) > named:
            raise Refused("GROUP BY an alias that names another")
        return value

    def _plain_zeros(self) -> dict[str, Value]:
        """Return the double keys by the text of their column, each in the form that has one zero."""
        keys: dict[str, Value] = {}
        for node in self._group.expressions if self._group is not None else ():
            if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                continue
            try:
                value = self._expressions.value(node, replace(self._scope, keys={}))
            except Refused:
                continue
            if value.type.floating:
                keys[node.sql("spark").lower()] = replace(value, sql=f"({value.sql} + 0)")
        return keys


def _has_one_form(node: exp.Expr) -> bool:
    """Tell whether a part of an expression is written in one way only: Spark takes `a + b` and `b + a` for one key."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() not in _ANY_ORDER
    return isinstance(node, _ONE_FORM) or type(node) in (exp.Var, exp.DataTypeParam)
