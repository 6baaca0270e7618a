"""Which tables a selection means: names, globs, methods such as `tag:`, and the `+` on either side of each.

Pure. A space is union, a comma is intersection.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from runnel.declare.model.endpoints import Changes
from runnel.declare.model.flow import Flow, log_of
from runnel.errors import Mistake, listed, nearest
from runnel.names import TableName, shown
from runnel.plan.graph import Graph

METHODS = ("tag", "path", "state")
STATES = ("modified",)
_SELECTOR = re.compile(r"(?:(?P<above>\d*)(?P<up>\+))?(?P<body>.+?)(?:(?P<down>\+)(?P<below>\d*))?")
_GLOB = re.compile(r"[*?\[]")
_GRAMMAR = "write names and globs such as dws.*, +x, x+, 2+x+1, tag:daily, path:flows/dws or state:modified+"


@dataclass(frozen=True)
class Selector:
    """One selector: a method with its value, and how far to go up and down. A depth of None has no end.

    The method of a plain name or glob is empty.
    """

    text: str
    method: str
    value: str
    up: bool = False
    down: bool = False
    above: int | None = None
    below: int | None = None


def select(
    graph: Graph,
    flow: Flow,
    include: Sequence[str],
    exclude: Sequence[str] = (),
    modified: Callable[[], set[TableName]] | None = None,
) -> frozenset[TableName]:
    """Return the tables that are meant; no `include` means all of them.

    `modified` returns the tables whose declaration changed and is called only where `state:modified` asks. A selector
    that matches nothing is a mistake, but for states: that nothing was modified is an answer.
    """
    choice = _Choice(graph, flow, modified)
    chosen = _with_logs(flow, choice.union(include)) if include else frozenset(graph.reads)
    left = chosen - _with_logs(flow, choice.union(exclude))
    if chosen and not left:
        what = f"everything that is selected is excluded by {listed(exclude)}"
        raise Mistake("PLAN_SELECTS_NOTHING", what, fix="exclude less, or select more")
    return left


def _with_logs(flow: Flow, tables: frozenset[TableName]) -> frozenset[TableName]:
    """Return tables so that one which follows from a log and its log go together: they are published together."""
    applied = [table for table, source in flow.sources.items() if isinstance(source.origin, Changes)]
    pairs = [{table, log_of(table)} for table in applied]
    return tables.union(*(pair for pair in pairs if not tables.isdisjoint(pair)))


def parse_selector(text: str) -> Selector:
    """Return what one selector says.

    >>> parse_selector("2+tag:daily+")
    Selector(text='2+tag:daily+', method='tag', value='daily', up=True, down=True, above=2, below=None)
    """
    found = _SELECTOR.fullmatch(text)
    if found is None or not found["body"].strip("+"):
        raise _malformed(text, "names no table")
    method, colon, value = found["body"].partition(":")
    if not colon:
        method, value = "", method
        if "+" in value:
            raise _malformed(text, "has a + in its middle")
    elif method not in METHODS:
        close = nearest(method, METHODS)
        raise _malformed(text, f"has the unknown method `{method}`" + (f"; close: `{close}`" if close else ""))
    elif not value:
        raise _malformed(text, f"has nothing after `{method}:`")
    above, below = (int(found[side]) if found[side] else None for side in ("above", "below"))
    return Selector(text, method, value, bool(found["up"]), bool(found["down"]), above, below)


class _Choice:
    """Answers the selectors of one command."""

    def __init__(self, graph: Graph, flow: Flow, modified: Callable[[], set[TableName]] | None) -> None:
        self.graph, self.flow, self.modified = graph, flow, modified

    def union(self, texts: Iterable[str]) -> frozenset[TableName]:
        found: set[TableName] = set()
        for text in texts:
            words = text.split()
            if not words:
                raise _malformed(text, "is empty")
            found.update(*(self.intersection(word) for word in words))
        return frozenset(found)

    def intersection(self, text: str) -> frozenset[TableName]:
        selectors = [parse_selector(part) for part in text.split(",")]
        found = frozenset.intersection(*(self.tables(selector) for selector in selectors))
        if not found and not any(selector.method == "state" for selector in selectors):
            what = f"no table is in all of {listed(selector.text for selector in selectors)}"
            raise Mistake("PLAN_SELECTS_NOTHING", what, fix="write a space instead of the comma to select all of them")
        return found

    def tables(self, selector: Selector) -> frozenset[TableName]:
        start = self.start(selector)
        found = set(start)
        if selector.up:
            found |= self.graph.above(start, selector.above)
        if selector.down:
            found |= self.graph.below(start, selector.below)
        return frozenset(found)

    def start(self, selector: Selector) -> frozenset[TableName]:
        """Return what a selector names by itself, before its + are followed."""
        if selector.method == "state":
            return self.state(selector)
        if selector.method == "tag":
            found, known = (
                self.tagged(selector.value),
                {tag for made in self.flow for tag in _tags(self.flow, made.table)},
            )
        elif selector.method == "path":
            files = {made.table: made.place.file for made in self.flow}
            found, known = {table for table, file in files.items() if _is_in(file, selector.value)}, _folders(files)
        else:
            found, known = self.named(selector.value), {str(table) for table in self.graph.reads}
        if not found:
            raise _nothing(selector, known)
        return frozenset(found)

    def state(self, selector: Selector) -> frozenset[TableName]:
        if selector.value not in STATES:
            close = nearest(selector.value, STATES)
            told = f"asks for the unknown state `{selector.value}`" + (f"; close: `{close}`" if close else "")
            raise _malformed(selector.text, told)
        if self.modified is None:
            raise _malformed(selector.text, "asks what was modified, but there is nothing here to compare with")
        return frozenset(self.modified()) & frozenset(self.graph.reads)

    def tagged(self, value: str) -> set[TableName]:
        return {
            made.table for made in self.flow if any(fnmatchcase(tag, value) for tag in _tags(self.flow, made.table))
        }

    def named(self, value: str) -> set[TableName]:
        """Return the tables with a name. Without a layer it means the last part of the name, as in a task's inputs."""
        if _GLOB.search(value):
            return {table for table in self.graph.reads if fnmatchcase(str(table), value)}
        if "." in value:
            return {table for table in self.graph.reads if str(table) == value}
        found = sorted(table for table in self.graph.reads if table.name == value)
        if len(found) > 1:
            what = f"`{value}` may be {listed(str(table) for table in found)}"
            raise Mistake("PLAN_SELECTION", what, fix=f"write the layer too, or *.{value} for all of them")
        return set(found)


def _tags(flow: Flow, table: TableName) -> tuple[str, ...]:
    return flow.tasks[table].options.tags if table in flow.tasks else flow.sources[table].tags


def _is_in(file: str, path: str) -> bool:
    """Tell whether a file is the one that a path names, or in that folder.

    >>> _is_in("flows/dws/a.sql", "./flows/dws/"), _is_in("flows/dws2/a.sql", "flows/dws")
    (True, False)
    """
    path = path.removeprefix("./").rstrip("/")
    if _GLOB.search(path):
        return fnmatchcase(file, path)
    return not path or path == "." or file == path or file.startswith(f"{path}/")


def _folders(files: dict[TableName, str]) -> set[str]:
    """Return every file with the folders above it."""
    return {
        "/".join(parts[:end])
        for file in files.values()
        for parts in [file.split("/")]
        for end in range(1, len(parts) + 1)
    }


def _nothing(selector: Selector, known: Iterable[str]) -> Mistake:
    choices = sorted(known)
    close = nearest(selector.value, choices)
    start = f"{selector.method}:" if selector.method else ""
    what = f"{shown(selector.text)} selects no table" + (f"; close: `{start}{close}`" if close else "")
    if not choices:
        told = (
            "nothing has a tag yet: add tags= to a task" if selector.method == "tag" else "declare a task or a source"
        )
    else:
        told = f"known: {listed(start + choice for choice in choices)}"
    return Mistake("PLAN_SELECTS_NOTHING", what, fix=told)


def _malformed(text: str, why: str) -> Mistake:
    return Mistake("PLAN_SELECTION", f"the selection {shown(text)} {why}", fix=_GRAMMAR)
