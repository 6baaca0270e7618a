"""Find where the rows of a JSON or XML document are, if they are not at its top level.

Reads a sample that is a complete document. The caller handles errors about the file.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

from runnel.connect.files.file_patterns import LocalFile

_MIN_ROWS = 2  # one element is no list yet
_MAX_DEPTH = 5


def find_records(file: LocalFile, encoding: str, names: Sequence[str]) -> str | None:
    """Return the path of the only list of objects in a document that is one object: `data.items`; None if in doubt.

    A document that has one of the declared columns `names` at its top level is a row itself.
    """
    try:
        document = json.loads(Path(file.path).read_bytes().decode("utf-8-sig" if encoding == "utf-8" else encoding))
    except json.JSONDecodeError:  # such as one object per line
        return None
    if not isinstance(document, dict) or {key.lower() for key in document} & {name.lower() for name in names}:
        return None
    paths = list(_iterate_record_paths(document, ()))
    return ".".join(paths[0]) if len(paths) == 1 and not any("." in key for key in paths[0]) else None


def _iterate_record_paths(value: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of lists of objects, without looking into lists."""
    for key, item in value.items():
        if isinstance(item, dict) and len(path) < _MAX_DEPTH:
            yield from _iterate_record_paths(item, (*path, key))
        elif isinstance(item, list) and len(item) >= _MIN_ROWS and all(isinstance(element, dict) for element in item):
            yield (*path, key)


def find_row_tag(file: LocalFile, names: Sequence[str]) -> str | None:
    """Return the name of the outermost element that repeats, if it is below the root's children; None if in doubt.

    A document whose rows, the root's children, have one of the declared columns `names` needs no tag.
    """
    elements = _ElementCounter()
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = elements.handle_start, elements.handle_end
    parser.Parse(Path(file.path).read_bytes(), True)
    declared = {name.lower() for name in names}
    if any(len(path) == 3 and path[-1].lower() in declared for path in (*elements.counts, *elements.fields)):
        return None
    levels = {len(path) for path, count in elements.counts.items() if count >= _MIN_ROWS and len(path) > 1}
    if not levels or min(levels) <= 2:  # the root's children repeat: they are the rows
        return None
    repeated = [path[-1] for path, count in elements.counts.items() if len(path) == min(levels) and count >= _MIN_ROWS]
    tags = Counter(path[-1] for path in elements.counts)
    return repeated[0] if len(repeated) == 1 and tags[repeated[0]] == 1 else None


class _ElementCounter:
    """Counts elements by their path from the root."""

    def __init__(self) -> None:
        self.path: tuple[str, ...] = ()
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.fields: set[tuple[str, ...]] = set()  # the attributes, by their path, too

    def handle_start(self, name: str, attributes: dict[str, str]) -> None:
        self.path = (*self.path, name.rpartition(":")[2])
        self.counts[self.path] += 1
        self.fields.update((*self.path, attribute.rpartition(":")[2]) for attribute in attributes)

    def handle_end(self, _name: str) -> None:
        self.path = self.path[:-1]
