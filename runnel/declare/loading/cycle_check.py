"""Find tasks that need each other. Pure."""

from collections.abc import Mapping

from runnel.declare.model.flow import Flow
from runnel.errors import Mistake
from runnel.names import TableName


def mistakes(flow: Flow) -> list[Mistake]:
    """Return one mistake for each circle of tasks, with the tables in the order in which data would flow."""
    feeds = {
        table: (*task.reads, *(other for other in task.refers if other != table)) for table, task in flow.tasks.items()
    }
    found = []
    for circle in circles(feeds):
        names = " -> ".join(str(table) for table in (*circle, circle[0]))
        places = ", ".join(dict.fromkeys(str(flow.tasks[table].place) for table in circle))
        what = f"tasks need each other: {names}" if len(circle) > 1 else f"a task reads its own table: {names}"
        fix = "let one of them read something else, or split it into two tasks"
        found.append(Mistake("PLAN_CYCLE", what, at=places, fix=fix))
    return found


def circles(reads: Mapping[TableName, tuple[TableName, ...]]) -> list[list[TableName]]:
    """Return circles, so many that each table that is on one, or needs one, is explained by one.

    Without recursion, as graphs may be deep.
    """
    done: set[TableName] = set()
    found: list[list[TableName]] = []
    for start in reads:
        path: dict[TableName, int] = {}
        stack = [(start, iter(reads[start]))] if start not in done else []
        if stack:
            path[start] = 0
        while stack:
            table, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                del path[table]
                done.add(table)
            elif following in path:
                found.append(_turned(list(path)[path[following] :]))
            elif following in reads and following not in done:
                path[following] = len(path)
                stack.append((following, iter(reads[following])))
    return found


def _turned(circle: list[TableName]) -> list[TableName]:
    """Return a circle of readers as one of feeders, from its first name on."""
    feeders = circle[::-1]
    first = feeders.index(min(feeders))
    return feeders[first:] + feeders[:first]
