"""Parse Spark SQL with sqlglot, completed where sqlglot refuses what Spark takes."""

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType


class GroupingParser(SparkParser):
    """Takes any expression inside CUBE, ROLLUP and GROUPING SETS, such as a comparison."""

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        kind: type[exp.Cube | exp.Rollup]
        if self._match(TokenType.CUBE):
            kind = exp.Cube
        elif self._match(TokenType.ROLLUP):
            kind = exp.Rollup
        else:
            return None
        expressions = [] if with_prefix else self._parse_wrapped_csv(self._parse_disjunction)
        return self.expression(kind(expressions=expressions))

    def _parse_grouping_set(self) -> exp.Expr | None:
        return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()


class SparkDialect(Spark):
    """Spark's dialect with the completed parser."""

    Parser = GroupingParser
