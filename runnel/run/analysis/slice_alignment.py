"""Check in the analysed plan of a task with `by=` that each slice depends on its own rows only. Computes nothing.

The rows of a slice must be the same whether all slices are read or only this one. A task whose plan contradicts that is
refused; a task whose plan can't show it is computed in full.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import Task
from runnel.errors import join_names
from runnel.run.analysis.alignment_errors import (
    lookback_error,
    map_column_error,
    missing_column_error,
    unaligned_error,
    wrong_column_error,
)
from runnel.run.analysis.column_usage import ColumnIds, find_output_ids
from runnel.run.analysis.expression_text import (
    PlanExpression,
    column_text,
    find_column_ids,
    parse_expression,
    read_exact_text,
    read_value_text,
    read_value_texts,
    split_condition,
    to_outer_query_text,
)
from runnel.run.analysis.frame_bounds import read_condition, read_window_frames, unwrap_date
from runnel.run.analysis.key_propagation import (
    UNIVERSAL,
    AlignmentUnknown,
    ColumnRenaming,
    KeyGroup,
    OperatorRows,
    find_unfixed_positions,
    intersect_groups,
    join_rows,
    make_sliced_rows,
    merge_groups,
    rename_columns,
    to_column_ids,
    to_positions,
)
from runnel.run.analysis.leaf_slices import LeafSlices, SliceKey, read_plan, refuse_unfit_expressions
from runnel.run.analysis.logical_plan import PlanNode, get_expression_id, get_outermost
from runnel.run.analysis.operators import GROUPED, NAMES, ROWWISE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SET_OPERATIONS = ("Union", "Intersect", "Except")
_JOINS = ("Join", "LateralJoin", "AsOfJoin")
_PROJECTION_FIELDS = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
# Operators that combine several rows, with the field that says which rows; a limit combines all of them.
_GROUPING_FIELDS = {
    "Aggregate": "groupingExpressions",
    "Window": "partitionSpec",
    "Deduplicate": "keys",
    "DeduplicateWithinWatermark": "keys",
    "GlobalLimit": None,
    "LocalLimit": None,
    "Offset": None,
    "Tail": None,
}


@dataclass(frozen=True)
class SlicedInput:
    """An input that has slices: its frame, the expressions that give the slice of a row, and its lookback in slices."""

    frame: "DataFrame"
    expressions: tuple[str, ...]
    lookback: int = 0


def check_slice_alignment(task: Task, frame: "DataFrame", sliced_inputs: Mapping[str, SlicedInput]) -> str | None:
    """Return why the plan does not show that each slice depends on its own rows only; None if it shows that.

    Raises a mistake if the plan shows the opposite. `sliced_inputs` maps identifiers to the inputs that have slices;
    all other inputs are always read as a whole.
    """
    for sliced_input in sliced_inputs.values():
        refuse_unfit_expressions(task, sliced_input.frame, sliced_input.expressions)
    nodes = read_plan(frame)
    slice_keys = {
        name: SliceKey(sliced_input.frame, sliced_input.expressions, sliced_input.lookback)
        for name, sliced_input in sliced_inputs.items()
    }
    try:
        alignment = _SliceAlignment(task, nodes, LeafSlices(frame, slice_keys))
        rows = alignment.rows[nodes[0]]
        group = alignment.require_single_group(rows) if rows.kind == "sliced" else None
        _refuse_missing_columns(task, frame)
        if group is not None:
            _refuse_other_columns(task, frame, group, alignment.output_ids[nodes[0]])
    except AlignmentUnknown as error:
        return str(error)
    return None


def _refuse_missing_columns(task: Task, frame: "DataFrame") -> None:
    """Refuse a task that does not make the columns of its `by`, or makes a map of one: maps can't be compared."""
    kinds = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
    for position, name in enumerate(task.options.by):
        kind = kinds.get(name.strip("`").lower())
        if kind is None:
            raise missing_column_error(task, position, frame.columns)
        if "map<" in kind:
            raise map_column_error(task, position)


def _refuse_other_columns(task: Task, frame: "DataFrame", group: KeyGroup, output_ids: ColumnIds) -> None:
    """Refuse a task whose `by` columns are not computed from the slice key."""
    names = [name.lower() for name in frame.columns]
    for position, name in enumerate(task.options.by):
        column_name = name.strip("`").lower()
        if output_ids is None:
            raise AlignmentUnknown(f"Runnel can't see what its column `{column_name}` is made from")
        if column_text(output_ids[names.index(column_name)]) not in group.keys[position]:
            if group.lookback_left:
                raise AlignmentUnknown(f"Runnel can't see that its column `{column_name}` stays within its lookback")
            raise wrong_column_error(task, position)


class _SliceAlignment:
    """Derive the slice keys of the rows of each operator of a plan, from the leaves up."""

    def __init__(self, task: Task, nodes: Sequence[PlanNode], leaf_slices: LeafSlices) -> None:
        self._task = task
        self._leaf_slices = leaf_slices
        self._cte_definitions: dict[int, PlanNode] = {}  # CTEs
        self._subquery_nodes = {
            inner_node for node in nodes for query in node.subqueries for inner_node in _walk_bottom_up(query)
        }
        self.output_ids: Mapping[PlanNode, ColumnIds] = find_output_ids(nodes)
        self.rows: dict[PlanNode, OperatorRows] = {}
        for node in _walk_bottom_up(nodes[0]):
            self.rows[node] = self._derive_rows(node)

    def require_single_group(self, rows: OperatorRows, node: PlanNode | None = None) -> KeyGroup:
        """Return the only key group of the rows; refuse rows that a join combined from several slices."""
        if len(rows.groups) != 1:
            _raise_if_looking_back(rows)
            raise unaligned_error(self._task, "Join", is_inside=node in self._subquery_nodes)
        return rows.groups[0]

    def _derive_rows(self, node: PlanNode) -> OperatorRows:
        child_rows = [self.rows[child] for child in node.children]
        if node.kind == "CTERelationRef":
            return self._resolve_cte_reference(node)
        if not child_rows:
            return self._leaf_slices.find_rows(node)
        if node.kind == "CTERelationDef":
            self._cte_definitions[node.fields["id"]] = node
        if node.kind in _SET_OPERATIONS:
            return self._derive_set_operation_rows(node, child_rows)
        if node.kind in _JOINS:
            return self._apply_subqueries(node, self._derive_joined_rows(node))
        if any("UDTF" in item["class"] for item in node.expressions) and child_rows[-1].kind == "sliced":
            raise AlignmentUnknown("Runnel can't look into its table function")
        if node.kind in GROUPED and any(item.kind == "sliced" for item in child_rows):
            return self._derive_grouped_rows(node, child_rows)
        return self._derive_unary_rows(node, self._apply_subqueries(node, _apply_filter(node, child_rows[-1])))

    def _derive_unary_rows(self, node: PlanNode, rows: OperatorRows) -> OperatorRows:
        """Return the rows of an operator with one child, from those of the child."""
        if rows.kind != "sliced":
            return rows
        if node.kind == "Window":
            rows = make_sliced_rows((self._apply_window(node, self.require_single_group(rows, node)),))
        elif node.kind in _GROUPING_FIELDS or node.kind == "Distinct":
            self._require_slice_grouping(node, self.require_single_group(rows, node))
        elif node.kind not in ROWWISE and node.kind != "Sample":
            name = NAMES.get(node.kind, node.kind)
            raise AlignmentUnknown(f"Runnel can't look into its `{name}`")
        if node.kind == "Expand" and node.fields.get("projections"):
            return make_sliced_rows(tuple(_expand_group(node, group) for group in rows.groups))
        if node.kind in (*_PROJECTION_FIELDS, "Expand"):
            renamings = list(_list_renamings(node.fields.get(_PROJECTION_FIELDS.get(node.kind, "")) or ()))
            return make_sliced_rows(
                tuple(rename_columns(group, renamings, self.output_ids[node]) for group in rows.groups)
            )
        return rows

    def _derive_grouped_rows(self, node: PlanNode, child_rows: Sequence[OperatorRows]) -> OperatorRows:
        """Return the rows that a user's function makes of each group of rows.

        A grouping column counts as passed on if the function returns a column of the same name.
        """
        groups = []
        for child, rows, field in zip(node.children, child_rows, GROUPED[node.kind], strict=True):
            if rows.kind == "universal":
                continue  # its rows are the same for every group
            grouping = node.fields[field]
            if isinstance(grouping, int):
                grouping = child.fields["projectList"][:grouping]
            if find_unfixed_positions(group := self.require_single_group(rows, node), read_value_texts(grouping)):
                raise AlignmentUnknown(
                    f"its `{NAMES[node.kind]}` is not grouped by {join_names(self._task.options.by)}"
                )
            groups.append(_rename_to_output_columns(group, grouping, node))
        return make_sliced_rows(merge_groups(tuple(groups)))

    def _apply_window(self, node: PlanNode, group: KeyGroup) -> KeyGroup:
        """Return the key group after a window; refuse a window that reads more slices than the lookback allows."""
        if not find_unfixed_positions(group, read_value_texts(node.fields["partitionSpec"])):
            return group
        if not group.lookback_left:
            self._require_slice_grouping(node, group)
        order_expressions = [parse_expression(item) for item in node.fields["orderSpec"]]
        order_expression = order_expressions[0] if len(order_expressions) == 1 else None
        is_by_key = (
            order_expression is not None and _resolve_window_order(node, order_expression.children[0]) in group.keys[0]
        )
        is_ascending = order_expression is not None and "Ascending" in str(order_expression.item.get("direction"))
        is_plain = is_by_key or not node.fields["partitionSpec"]  # else it may be partitioned by a later day
        width = 0
        for frame in read_window_frames(node.fields["windowExpressions"]):
            if frame is not None and is_plain and (frame.first is None or frame.last is None):
                raise lookback_error(self._task, None, group.lookback_left)
            if frame is None or not (frame.is_range and is_by_key and is_ascending):
                raise AlignmentUnknown("Runnel can't see that its window stays within its lookback")
            if frame.last is None or frame.last > 0:
                raise lookback_error(self._task, None, group.lookback_left)
            width = max(width, -(frame.first or 0))
        if width > group.lookback_left:
            raise lookback_error(self._task, width, group.lookback_left)
        return replace(group, lookback_left=group.lookback_left - width)

    def _require_slice_grouping(self, node: PlanNode, group: KeyGroup) -> None:
        """Refuse an operator that combines rows of several slices."""
        field = _GROUPING_FIELDS.get(node.kind)
        grouping_texts = read_value_texts(node.fields[field]) if field else []
        if node.kind == "Distinct":
            ids = self.output_ids[node]
            if ids is None:
                raise AlignmentUnknown("Runnel can't see which columns its distinct compares")
            grouping_texts = [column_text(column_id) for column_id in ids]
        missing_positions = find_unfixed_positions(group, grouping_texts)
        if missing_positions and group.lookback_left:
            operator_name = "subquery" if node in self._subquery_nodes else NAMES[node.kind]
            raise AlignmentUnknown(f"Runnel can't see that its {operator_name} stays within its lookback")
        if missing_positions:
            kind = "Expand" if node.kind == "Aggregate" and node.children[0].kind == "Expand" else node.kind
            raise unaligned_error(self._task, kind, missing_positions, is_inside=node in self._subquery_nodes)

    def _derive_joined_rows(self, node: PlanNode) -> OperatorRows:
        side_nodes = [*node.children, *(node.subqueries if node.kind == "LateralJoin" else ())][:2]
        left, right = (self.rows[side] for side in side_nodes)
        if node.kind == "LateralJoin":
            outer_keys = (
                tuple(frozenset(map(to_outer_query_text, item)) for item in group.keys) for group in right.groups
            )
            right = OperatorRows(
                right.kind, tuple(map(KeyGroup, outer_keys, (group.lookback_left for group in right.groups)))
            )
        ids = [self.output_ids[side] for side in side_nodes]
        join_type = str((node.fields.get("joinType") or {}).get("object")).rpartition(".")[2].rstrip("$")
        condition = read_condition(parse_expression(node.fields.get("condition")))
        joined_rows = join_rows(join_type, left, right, condition, [item or () for item in ids])
        if joined_rows is None:
            _raise_if_looking_back(left, right)
            raise unaligned_error(self._task, node.kind, is_inside=node in self._subquery_nodes)
        return joined_rows

    def _derive_set_operation_rows(self, node: PlanNode, child_rows: Sequence[OperatorRows]) -> OperatorRows:
        """Return the rows of a union, intersect or except, whose children have the same columns by position."""
        kinds = {input_rows.kind for input_rows in child_rows}
        ids = [self.output_ids[child] for child in node.children]
        if "sliced" not in kinds:
            return UNIVERSAL
        if None in ids:
            raise AlignmentUnknown(f"Runnel can't see the columns of its {NAMES.get(node.kind, 'union')}")
        groups = [
            to_positions(self.require_single_group(input_rows, node), own_ids or ())
            for input_rows, own_ids in zip(child_rows, ids, strict=True)
            if input_rows.kind == "sliced"
        ]
        group = to_column_ids(intersect_groups(groups, covers_all_rows=kinds == {"sliced"}), ids[0] or ())
        missing_positions = [position for position, key_texts in enumerate(group.keys) if not key_texts]
        if missing_positions:
            _raise_if_looking_back(*child_rows)
        if missing_positions and node.kind != "Union":
            raise unaligned_error(self._task, node.kind, missing_positions, is_inside=node in self._subquery_nodes)
        return make_sliced_rows((group,))

    def _resolve_cte_reference(self, node: PlanNode) -> OperatorRows:
        """Return the rows of a CTE in terms of the column ids of the reference to it."""
        definition = self._cte_definitions.get(node.fields["cteId"])
        definition_ids = self.output_ids[definition] if definition else None
        if definition is None or definition_ids is None:
            raise AlignmentUnknown("Runnel can't see what one of its common table expressions is")
        reference_ids = [column_id for column_id, _ in node.attributes]
        rows = self.rows[definition]
        return OperatorRows(
            rows.kind, tuple(to_column_ids(to_positions(group, definition_ids), reference_ids) for group in rows.groups)
        )

    def _apply_subqueries(self, node: PlanNode, rows: OperatorRows) -> OperatorRows:
        """Return the rows of an operator with subqueries in expressions; refuse subqueries that read other slices."""
        if node.kind == "LateralJoin" or not node.subqueries:
            return rows
        compared_texts = _map_in_comparisons(node)
        for item, query in _list_subqueries(node):
            subquery_rows = self.rows[query]
            for group in subquery_rows.groups:
                pairs = list(zip(compared_texts.get(id(item), ()), self.output_ids[query] or (), strict=False))
                outer_keys = tuple(_translate_key_outward(key_texts, pairs) for key_texts in group.keys)
                if rows.kind == "universal" and all(outer_keys):
                    rows = make_sliced_rows((KeyGroup(outer_keys, group.lookback_left),))
                if not any(
                    all(
                        own_texts & outer_texts
                        for own_texts, outer_texts in zip(own_group.keys, outer_keys, strict=True)
                    )
                    for own_group in rows.groups
                ):
                    _raise_if_looking_back(subquery_rows)
                    raise unaligned_error(self._task, "Subquery", is_inside=node in self._subquery_nodes)
        return rows


def _walk_bottom_up(root: PlanNode) -> Iterator[PlanNode]:
    """Yield the operators of a plan, each after its children and subqueries; a CTE before what refers to it."""
    pending = [(root, False)]
    while pending:
        node, is_ready = pending.pop()
        if is_ready:
            yield node
        else:
            pending.append((node, True))
            pending.extend((child, False) for child in reversed([*node.children, *node.subqueries]))


def _apply_filter(node: PlanNode, rows: OperatorRows) -> OperatorRows:
    if node.kind != "Filter" or rows.kind != "sliced":
        return rows
    return make_sliced_rows(merge_groups(rows.groups, read_condition(parse_expression(node.fields["condition"]))))


def _resolve_window_order(node: PlanNode, expression: PlanExpression) -> str | None:
    """Return the text that a window is ordered by; a day if that is the number of a day.

    Spark moves ordering expressions into a projection below the window.
    """
    projection_items = node.children[0].fields.get("projectList") or () if node.children[0].kind == "Project" else ()
    for item in projection_items:
        alias = parse_expression(item)
        if (
            alias is not None
            and alias.kind == "Alias"
            and column_text(get_expression_id(dict(alias.item))) == expression.value_text
        ):
            expression = alias.children[0]
    return unwrap_date(expression).value_text


def _raise_if_looking_back(*sides: OperatorRows) -> None:
    """Raise if rows of several slices may meet because of a lookback: the plan does not show how far apart they are."""
    if any(group.lookback_left for rows in sides for group in rows.groups):
        raise AlignmentUnknown("Runnel can't see that its rows stay within its lookback")


def _rename_to_output_columns(group: KeyGroup, grouping: Sequence[Any], node: PlanNode) -> KeyGroup:
    """Return a key group in terms of the columns that a function returns, matched by name."""
    output_ids_by_name = {name.lower(): id_ for id_, name in node.attributes}
    outermost_expressions = [top for item in grouping if (top := get_outermost(item))]
    names = [
        (column_text(get_expression_id(top)), output_ids_by_name.get(str(top.get("name")).lower()))
        for top in outermost_expressions
    ]
    renamings = [ColumnRenaming(text, text, column_text(id_)) for text, id_ in names if id_ is not None]
    return rename_columns(group, renamings, list(output_ids_by_name.values()))


def _list_renamings(items: Sequence[Any]) -> Iterator[ColumnRenaming]:
    """Yield which expression each column of a projection stands for."""
    for item in items:
        top = get_outermost(item)
        if top and top["class"].endswith(".Alias"):
            exact, value = read_exact_text(item), read_value_text(item)
            if exact is not None and value is not None:
                yield ColumnRenaming(exact, value, column_text(get_expression_id(top)))


def _expand_group(node: PlanNode, group: KeyGroup) -> KeyGroup:
    """Return the key group after an Expand, which copies each row several times: what all projections share."""
    ids = [column_id for column_id, _ in node.attributes]
    groups = []
    for projection in node.fields["projections"]:
        renamings = [
            ColumnRenaming(exact, read_value_text(item) or exact, f"@{position}@")
            for position, item in enumerate(projection)
            if (exact := read_exact_text(item)) is not None
        ]
        groups.append(rename_columns(group, renamings, ()))
    return to_column_ids(intersect_groups(groups, covers_all_rows=True), ids)


def _list_subqueries(node: PlanNode) -> Iterator[tuple[dict[str, Any], PlanNode]]:
    """Yield each expression that contains a plan, with the root of that plan."""
    subquery_expressions = [
        expression for expression in node.expressions if isinstance(expression.get("plan"), list) and expression["plan"]
    ]
    yield from zip(
        subquery_expressions, reversed(node.subqueries), strict=True
    )  # a tree lists them from the last to the first


def _map_in_comparisons(node: PlanNode) -> dict[int, list[str | None]]:
    """Return the texts that IN compares with the columns of a subquery, in places where null means false."""
    compared_texts: dict[int, list[str | None]] = {}
    for condition_part in split_condition(parse_expression(node.fields.get("condition")), "And", "Or"):
        if condition_part.kind == "InSubquery":
            *values, query = condition_part.children
            compared_texts[id(query.item)] = [value.value_text for value in values]
    return compared_texts


def _translate_key_outward(key_texts: frozenset[str], pairs: Sequence[tuple[str | None, int]]) -> frozenset[str]:
    """Return the texts outside a subquery that equal a key inside it."""
    compared_texts = {value for value, column_id in pairs if value is not None and column_text(column_id) in key_texts}
    return frozenset({to_outer_query_text(text) for text in key_texts if not find_column_ids(text)} | compared_texts)
