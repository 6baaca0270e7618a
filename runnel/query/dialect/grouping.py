"""GROUP BY."""

from dataclasses import replace

from sqlglot import exp

from runnel.query.dialect.expressions import Expressions
from runnel.query.dialect.grammar import check_arguments
from runnel.query.dialect.scope import Scope
from runnel.query.dialect.value import Refused, Value

_SETS: dict[type[exp.Expr], str] = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}


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
        self.keys: dict[str, Value] = self._plain_zeros()

    def clause(self, columns: list[Value]) -> str:
        """Return the GROUP BY clause."""
        group = self._group
        if group is None:
            return ""
        check_arguments(group)
        if group.args.get("all"):
            raise Refused("GROUP BY ALL")
        plain = [e for e in group.expressions if type(e) not in _SETS]
        keys = [self._key(e, columns) for e in plain]
        for old in ("rollup", "cube"):
            # GROUP BY a, b WITH ROLLUP
            if group.args.get(old) and any(not g.expressions for g in group.args[old]):
                return f" GROUP BY {old.upper()} ({', '.join(keys)})"
        sets = [e for e in group.expressions if type(e) in _SETS]
        sets += [s for name in ("rollup", "cube", "grouping_sets") for s in group.args.get(name) or ()]
        keys += [self._set(one, columns) for one in sets]
        return f" GROUP BY {', '.join(keys)}"

    def _set(self, node: exp.Expr, columns: list[Value]) -> str:
        entries = []
        for entry in node.expressions:
            if type(entry) in _SETS:
                raise Refused("nested grouping sets")
            inner = entry.expressions if isinstance(entry, exp.Tuple) else [entry]
            inner = [e.this if isinstance(e, exp.Paren) else e for e in inner]
            entries.append("(" + ", ".join(self._key(e, columns) for e in inner) + ")")
        return f"{_SETS[type(node)]} ({', '.join(entries)})"

    def _key(self, node: exp.Expr, columns: list[Value]) -> str:
        if isinstance(node, exp.Literal):
            if node.is_string or not node.this.isdigit() or not 1 <= int(node.this) <= len(columns):
                raise Refused("GROUP BY a constant")
            value = columns[int(node.this) - 1]
        else:
            value = self._expressions.value(node, self._scope)
        if not value.type.atomic or value.is_null or value.literal is not None:
            raise Refused(f"GROUP BY {value.type}")
        if value.type.floating and value.sql not in [key.sql for key in self.keys.values()]:
            raise Refused("GROUP BY a computed double")
        return value.sql

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
