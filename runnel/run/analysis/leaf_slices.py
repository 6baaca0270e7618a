"""Find what the leaves of a plan contribute to a task with `by=`: slices, rows always read, or unknown rows."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import Task
from runnel.errors import Mistake, did_you_mean, join_names
from runnel.names import quote_value
from runnel.query.engines.spark_errors import find_condition, find_unknown_column, find_unknown_function
from runnel.run.analysis.expression_text import column_text, find_column_ids, read_exact_text, read_value_text
from runnel.run.analysis.key_propagation import UNIVERSAL, AlignmentUnknown, KeyGroup, OperatorRows, make_sliced_rows
from runnel.run.analysis.logical_plan import PlanNode, build_tree, get_expression_id, get_outermost
from runnel.run.analysis.operators import LITERAL, NONDETERMINISTIC
from runnel.run.analysis.plan_leaves import PlanLeaf, read_leaves
from runnel.run.errors.task_errors import list_spark_functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"`([^`]+)`")
_TABLE_LEAVES = ("LogicalRDD", "LogicalRelation", "DataSourceV2Relation")


def read_plan(frame: "DataFrame") -> list[PlanNode]:
    """Return the analysed plan of a frame, the root first."""
    return build_tree(json.loads(frame._jdf.queryExecution().analyzed().toJSON()))


class LeafSlices:
    """Map the leaves of a plan to the inputs of a task. Asks Spark only if the plan does not name a table."""

    def __init__(self, frame: "DataFrame", keys: "Mapping[str, SliceKey]") -> None:
        self._frame = frame
        self._keys = keys

    def find_rows(self, leaf: PlanNode) -> OperatorRows:
        """Return the rows of a leaf. Raises AlignmentUnknown if their origin is hidden."""
        if leaf.kind in LITERAL:
            return UNIVERSAL
        if leaf.kind == "UnionLoopRef":
            raise AlignmentUnknown("its query is recursive")
        if leaf.kind not in _TABLE_LEAVES:
            raise AlignmentUnknown(f"Runnel does not know what `{leaf.kind}` reads")
        name = leaf.alias if leaf.kind == "DataSourceV2Relation" else None
        plan_leaf = (
            PlanLeaf(table=name)
            if name
            else self._leaves_by_id.get(leaf.attributes[0][0] if leaf.attributes else -1, PlanLeaf())
        )
        if plan_leaf.hides:
            raise AlignmentUnknown("it goes through an RDD or a checkpoint")
        key = self._keys.get(plan_leaf.table or "")
        return make_sliced_rows((key.to_key_group(leaf),)) if key else UNIVERSAL

    @cached_property
    def _leaves_by_id(self) -> dict[int, PlanLeaf]:
        return read_leaves(self._frame)


class SliceKey:
    """The expressions that give the slice of an input's row, for each leaf of a plan that reads it.

    `lookback` is how many slices before its own a slice may read.
    """

    def __init__(self, frame: "DataFrame", expressions: Sequence[str], lookback: int = 0) -> None:
        self._frame = frame
        self._expressions = expressions
        self._lookback = lookback

    def to_key_group(self, leaf: PlanNode) -> KeyGroup:
        """Return the key in terms of the columns of a leaf: Spark assigns new ids if a table is read twice."""
        ids = {name.lower(): column_id for column_id, name in leaf.attributes}
        keys = tuple(frozenset(_translate_ids(text, names, ids)) for text, names in self._resolved_expressions)
        for expression, texts in zip(self._expressions, keys, strict=True):
            if not texts:
                raise AlignmentUnknown(f"Runnel can't follow the expression {quote_value(expression)} of by_input=")
        return KeyGroup(keys, self._lookback)

    @cached_property
    def _resolved_expressions(self) -> list[tuple[str | None, Mapping[int, str]]]:
        names = [match[1] for text in self._expressions if (match := _NAME.fullmatch(text))]
        if len(names) == len(self._expressions):
            return [(column_text(0), {0: name}) for name in names]
        node = read_plan(self._frame.selectExpr(*self._expressions))[0]
        texts = [read_value_text(item) for item in node.fields["projectList"]]
        references = list(node.expressions)
        while (node := node.children[0]).kind in ("Project", "Filter"):  # window(...) is computed in a projection below
            references += node.expressions
            texts = [_inline_definitions(text, node.fields.get("projectList") or ()) for text in texts]
        names_by_id = {
            get_expression_id(reference): str(reference["name"])
            for reference in references
            if reference["class"].endswith("Reference")
        }
        return [(text, names_by_id) for text in texts]


def refuse_unfit_expressions(task: Task, frame: "DataFrame", expressions: Sequence[str]) -> None:
    """Refuse `by_input` expressions that are not deterministic, or that give a row no slice or several."""
    if all(_NAME.fullmatch(text) for text in expressions):
        return
    plan = _analyse_expressions(task, frame, expressions)
    nodes = build_tree(json.loads(plan.toJSON()))
    kinds = {item["class"].rpartition(".")[2].rstrip("$") for node in nodes for item in node.expressions}
    names = sorted(NONDETERMINISTIC[kind] for kind in kinds if kind in NONDETERMINISTIC)
    is_deterministic = all(plan.expressions().apply(position).deterministic() for position in range(len(expressions)))
    if names or not is_deterministic:
        what = f"uses {join_names(names)}, which" if names else "has a value that"
        raise _unfit_expression_error(task, expressions, f"{what} may differ each time it is computed")
    node = nodes[0]
    while node.kind in ("Project", "Filter"):
        if node.subqueries:
            raise _unfit_expression_error(task, expressions, "looks at other rows")
        node = node.children[0]
    if node.kind not in ("SubqueryAlias", "View", *_TABLE_LEAVES):
        raise _unfit_expression_error(task, expressions, "looks at other rows, or puts a row into several slices")


def _analyse_expressions(task: Task, frame: "DataFrame", expressions: Sequence[str]) -> Any:
    """Return Spark's analysed plan of the expressions; refuse what Spark can't read."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        return frame.selectExpr(*expressions)._jdf.queryExecution().analyzed()
    except (AnalysisException, ParseException) as error:
        raise _unreadable_expression_error(task, expressions, frame.columns, str(error)) from error


def _unreadable_expression_error(
    task: Task, expressions: Sequence[str], columns: Sequence[str], message: str
) -> Mistake:
    condition, text = find_condition(message) or ("", message.strip().partition("\n")[0])
    fix = "correct the expression"
    if condition.startswith("UNRESOLVED_COLUMN") and (name := find_unknown_column(message)) is not None:
        text, fix = f"there is no column `{name}`" + did_you_mean(name, columns), f"use one of {join_names(columns)}"
    elif (unknown_function := find_unknown_function(message, list_spark_functions)) is not None:
        text, fix = unknown_function
    what = f"task `{task.table}` has by_input= {quote_value(', '.join(expressions))}, but {text}"
    return Mistake("RUN_BY_INPUT", what, at=str(task.place_of("by_input")), fix=fix)


def _unfit_expression_error(task: Task, expressions: Sequence[str], why: str) -> Mistake:
    problem = f"{quote_value(', '.join(expressions))} in by_input= {why}"
    what = f"task `{task.table}` is computed by {join_names(task.options.by)}, but {problem}"
    fix = "name the slice of a row by an expression of its own columns that always has the same value"
    return Mistake("RUN_NOT_BY", what, at=str(task.place_of("by_input")), fix=fix)


def _inline_definitions(text: str | None, items: Sequence[Any]) -> str | None:
    """Return a text with the columns of a projection replaced by their definitions."""
    for item in items:
        top = get_outermost(item)
        if (
            text is None
            or top is None
            or not top["class"].endswith(".Alias")
            or column_text(get_expression_id(top)) not in text
        ):
            continue
        definition = read_exact_text(item)
        text = text.replace(column_text(get_expression_id(top)), definition) if definition is not None else None
    return text


def _translate_ids(text: str | None, names: Mapping[int, str], ids: Mapping[str, int]) -> Iterator[str]:
    """Yield a text with its column ids translated to those of a leaf; nothing if the leaf lacks a column."""
    new_ids = {column_id: ids.get(names.get(column_id, "").lower(), -1) for column_id in find_column_ids(text or "")}
    if text is not None and -1 not in new_ids.values():
        yield re.sub(r"#(\d+)#", lambda match: column_text(new_ids[int(match[1])]), text)
