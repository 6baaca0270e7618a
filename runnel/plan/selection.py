"""Resolve selections of tables: names, globs, methods such as `tag:`, and `+` before or after each.

Pure. A space means union, a comma intersection.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import Flow, log_table_of
from runnel.errors import Mistake, close_hint, did_you_mean, find_nearest, join_names
from runnel.names import TableName, quote_value
from runnel.plan.graph import Graph

METHODS = ("tag", "path", "state")
STATES = ("modified",)
_SELECTOR = re.compile(r"(?:(?P<above>\d*)(?P<up>\+))?(?P<body>.+?)(?:(?P<down>\+)(?P<below>\d*))?")
_GLOB = re.compile(r"[*?\[]")
_GRAMMAR = "write names and globs such as dws.*, +x, x+, 2+x+1, tag:daily, path:flows/dws or state:modified+"


@dataclass(frozen=True)
class Selector:
    """One selector: a method with its value, and how far to follow the graph up and down. None means unlimited depth.

    The method of a plain name or glob is empty.
    """

    text: str
    method: str
    value: str
    up: bool = False
    down: bool = False
    above: int | None = None
    below: int | None = None


def select_tables(
    graph: Graph,
    flow: Flow,
    include: Sequence[str],
    exclude: Sequence[str] = (),
    modified: Callable[[], set[TableName]] | None = None,
) -> frozenset[TableName]:
    """Return the selected tables; an empty `include` selects all.

    `modified` returns the tables whose declaration changed; it is called only for `state:modified`. A selector that
    matches nothing is a mistake, except a state: nothing may be modified.
    """
    resolver = _SelectionResolver(graph, flow, modified)
    chosen = _add_change_logs(flow, resolver.resolve_union(include)) if include else frozenset(graph.inputs)
    remaining = chosen - _add_change_logs(flow, resolver.resolve_union(exclude))
    if chosen and not remaining:
        what = f"everything that is selected is excluded by {join_names(exclude)}"
        raise Mistake("PLAN_SELECTS_NOTHING", what, fix="exclude less, or select more")
    return remaining


def find_schedule_mistakes(flow: Flow) -> list[Mistake]:
    """Return a mistake for each schedule whose selection matches no table or can't be read."""
    graph, mistakes = Graph(flow), list[Mistake]()
    for schedule in flow.schedules:
        try:
            select_tables(graph, flow, (schedule.select,) if schedule.select else (), modified=set)
        except Mistake as mistake:
            what = f"schedule {quote_value(schedule.name)}: {mistake.what}"
            mistakes.append(Mistake(mistake.code, what, at=str(schedule.place), fix=mistake.fix))
    return mistakes


def _add_change_logs(flow: Flow, tables: frozenset[TableName]) -> frozenset[TableName]:
    """Add the change log of each selected table, and the table of each selected log: both are published together."""
    applied = [table for table, source in flow.sources.items() if isinstance(source.origin, Changes)]
    pairs = [{table, log_table_of(table)} for table in applied]
    return tables.union(*(pair for pair in pairs if not tables.isdisjoint(pair)))


def parse_selector(text: str) -> Selector:
    """Parse the text of one selector.

    >>> parse_selector("2+tag:daily+")
    Selector(text='2+tag:daily+', method='tag', value='daily', up=True, down=True, above=2, below=None)
    """
    match = _SELECTOR.fullmatch(text)
    if match is None or not match["body"].strip("+"):
        raise _describe_malformed(text, "names no table")
    method, colon, value = match["body"].partition(":")
    if not colon:
        method, value = "", method
        if "+" in value:
            raise _describe_malformed(text, "has a + in its middle")
    elif method not in METHODS:
        raise _describe_malformed(text, f"has the unknown method `{method}`" + did_you_mean(method, METHODS))
    elif not value:
        raise _describe_malformed(text, f"has nothing after `{method}:`")
    above, below = (int(match[side]) if match[side] else None for side in ("above", "below"))
    return Selector(text, method, value, bool(match["up"]), bool(match["down"]), above, below)


class _SelectionResolver:
    """Resolves the selectors of one command."""

    def __init__(self, graph: Graph, flow: Flow, modified: Callable[[], set[TableName]] | None) -> None:
        self.graph, self.flow, self.modified = graph, flow, modified

    def resolve_union(self, texts: Iterable[str]) -> frozenset[TableName]:
        tables: set[TableName] = set()
        for text in texts:
            words = text.split()
            if not words:
                raise _describe_malformed(text, "is empty")
            tables.update(*(self.resolve_intersection(word) for word in words))
        return frozenset(tables)

    def resolve_intersection(self, text: str) -> frozenset[TableName]:
        selectors = [parse_selector(part) for part in text.split(",")]
        tables = frozenset.intersection(*(self.resolve_selector(selector) for selector in selectors))
        if not tables and not any(selector.method == "state" for selector in selectors):
            what = f"no table is in all of {join_names(selector.text for selector in selectors)}"
            raise Mistake("PLAN_SELECTS_NOTHING", what, fix="write a space instead of the comma to select all of them")
        return tables

    def resolve_selector(self, selector: Selector) -> frozenset[TableName]:
        start = self.find_start_tables(selector)
        selected = set(start)
        if selector.up:
            selected |= self.graph.upstream_of(start, selector.above)
        if selector.down:
            selected |= self.graph.downstream_of(start, selector.below)
        return frozenset(selected)

    def find_start_tables(self, selector: Selector) -> frozenset[TableName]:
        """Return the tables that a selector names directly, without following its `+`."""
        if selector.method == "state":
            return self.find_modified(selector)
        if selector.method == "tag":
            tables, candidates = (
                self.find_tagged(selector.value),
                {tag for declaration in self.flow for tag in _tags_of(self.flow, declaration.table)},
            )
        elif selector.method == "path":
            files = {declaration.table: declaration.place.file for declaration in self.flow}
            tables, candidates = (
                {table for table, file in files.items() if _is_in_path(file, selector.value)},
                _list_paths(files),
            )
        else:
            tables, candidates = self.find_named(selector.value), {str(table) for table in self.graph.inputs}
        if not tables:
            raise _describe_empty_selection(selector, candidates)
        return frozenset(tables)

    def find_modified(self, selector: Selector) -> frozenset[TableName]:
        if selector.value not in STATES:
            problem = f"asks for the unknown state `{selector.value}`" + did_you_mean(selector.value, STATES)
            raise _describe_malformed(selector.text, problem)
        if self.modified is None:
            raise _describe_malformed(selector.text, "asks for modified tables, but there is nothing to compare with")
        return frozenset(self.modified()) & frozenset(self.graph.inputs)

    def find_tagged(self, value: str) -> set[TableName]:
        return {
            declaration.table
            for declaration in self.flow
            if any(fnmatchcase(tag, value) for tag in _tags_of(self.flow, declaration.table))
        }

    def find_named(self, value: str) -> set[TableName]:
        """Return the tables that match a name. A name without a layer means the last part, as in a task's inputs."""
        if _GLOB.search(value):
            return {table for table in self.graph.inputs if fnmatchcase(str(table), value)}
        if "." in value:
            return {table for table in self.graph.inputs if str(table) == value}
        tables = sorted(table for table in self.graph.inputs if table.name == value)
        if len(tables) > 1:
            what = f"`{value}` may be {join_names(str(table) for table in tables)}"
            raise Mistake("PLAN_SELECTION", what, fix=f"write the layer too, or *.{value} for all of them")
        return set(tables)


def _tags_of(flow: Flow, table: TableName) -> tuple[str, ...]:
    return flow.tasks[table].options.tags if table in flow.tasks else flow.sources[table].tags


def _is_in_path(file: str, path: str) -> bool:
    """Return whether a file is the one that a path names, or in that folder.

    >>> _is_in_path("flows/dws/a.sql", "./flows/dws/"), _is_in_path("flows/dws2/a.sql", "flows/dws")
    (True, False)
    """
    path = path.removeprefix("./").rstrip("/")
    if _GLOB.search(path):
        return fnmatchcase(file, path)
    return not path or path == "." or file == path or file.startswith(f"{path}/")


def _list_paths(files: dict[TableName, str]) -> set[str]:
    """Return every file and the folders that contain it."""
    return {
        "/".join(parts[:end])
        for file in files.values()
        for parts in [file.split("/")]
        for end in range(1, len(parts) + 1)
    }


def _describe_empty_selection(selector: Selector, candidates: Iterable[str]) -> Mistake:
    choices = sorted(candidates)
    close = find_nearest(selector.value, choices)
    start = f"{selector.method}:" if selector.method else ""
    what = f"{quote_value(selector.text)} selects no table" + close_hint(start + close if close else None)
    if not choices:
        fix = "nothing has a tag yet: add tags= to a task" if selector.method == "tag" else "declare a task or a source"
    else:
        fix = f"known: {join_names(start + choice for choice in choices)}"
    return Mistake("PLAN_SELECTS_NOTHING", what, fix=fix)


def _describe_malformed(text: str, problem: str) -> Mistake:
    return Mistake("PLAN_SELECTION", f"the selection {quote_value(text)} {problem}", fix=_GRAMMAR)
