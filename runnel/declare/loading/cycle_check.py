"""Find cycles of tasks that depend on each other. Pure."""

from collections.abc import Mapping

from runnel.declare.model.flow import Flow
from runnel.errors import Mistake
from runnel.names import TableName


def check_flow(flow: Flow) -> list[Mistake]:
    """Return one mistake for each cycle of tasks, with the tables in the order in which data would flow."""
    dependencies = {
        table: (*task.input_tables, *(other for other in task.referenced_tables if other != table))
        for table, task in flow.tasks.items()
    }
    cycle_mistakes = []
    for cycle in find_cycles(dependencies):
        names = " -> ".join(str(table) for table in (*cycle, cycle[0]))
        places = ", ".join(dict.fromkeys(str(flow.tasks[table].place) for table in cycle))
        what = f"tasks need each other: {names}" if len(cycle) > 1 else f"a task reads its own table: {names}"
        fix = "let one of them read something else, or split it into two tasks"
        cycle_mistakes.append(Mistake("PLAN_CYCLE", what, at=places, fix=fix))
    return cycle_mistakes


def find_cycles(reads: Mapping[TableName, tuple[TableName, ...]]) -> list[list[TableName]]:
    """Return enough cycles to explain every table that is on a cycle or depends on one.

    Iterates instead of recursing, because graphs may be deep.
    """
    done: set[TableName] = set()
    cycles: list[list[TableName]] = []
    for start in reads:
        path: dict[TableName, int] = {}
        stack = [(start, iter(reads[start]))] if start not in done else []
        if stack:
            path[start] = 0
        while stack:
            table, remaining_inputs = stack[-1]
            next_table = next(remaining_inputs, None)
            if next_table is None:
                stack.pop()
                del path[table]
                done.add(table)
            elif next_table in path:
                cycles.append(_order_by_flow(list(path)[path[next_table] :]))
            elif next_table in reads and next_table not in done:
                path[next_table] = len(path)
                stack.append((next_table, iter(reads[next_table])))
    return cycles


def _order_by_flow(cycle: list[TableName]) -> list[TableName]:
    """Reverse a cycle into the order in which data flows, starting with its first name."""
    feeders = cycle[::-1]
    first = feeders.index(min(feeders))
    return feeders[first:] + feeders[:first]
