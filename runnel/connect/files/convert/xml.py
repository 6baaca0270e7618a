"""XML as JSON lines: every element of one name is a row; its attributes and its children are columns.

Read as a stream. What declares entities is refused: they can be made to grow without bounds, or to read other files.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from runnel.connect.files.compression import whole
from runnel.connect.files.file_patterns import File
from runnel.connect.files.scratch_files import Scratch, opened
from runnel.errors import Mistake, nearest
from runnel.names import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.declare.model.column_types import Column

TEXT = "value"  # of an element that has text beside attributes or children
_CHUNK = 1 << 18
_DEEPEST = 100


class _Element:
    """An element of a row that is being read."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.is_nil = attributes.pop("nil", "").lower() in ("true", "1")
        self.values: dict[str, list[Any]] = {key: [value] for key, value in attributes.items()}
        self.texts: list[str] = []

    def value(self) -> Any:
        text = "".join(self.texts).strip()
        if not self.values:
            return text if text and not self.is_nil else None
        found = {key: many[0] if len(many) == 1 else many for key, many in self.values.items()}
        return {**found, TEXT: text} if text else found


class _Rows:
    """The handlers of the parser: elements in, rows out."""

    def __init__(self, row_tag: str | None, out: Any, kinds: "Mapping[str, Any]") -> None:
        self.row_tag = row_tag
        self.out = out
        self.kinds = kinds
        self.depth = 0
        self.count = 0
        self.open: list[_Element] = []
        self.names: set[str] = set()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        tag = _local(name)
        self.depth += 1
        is_row = tag == self.row_tag or name == self.row_tag if self.row_tag else self.depth == 2
        if self.open or is_row:
            if len(self.open) >= _DEEPEST:
                raise ValueError(f"elements are nested more than {_DEEPEST} deep")
            given = {_local(key): text for key, text in attributes.items() if not key.startswith("xmlns")}
            self.open.append(_Element(tag, given))
        elif len(self.names) < 1000 and self.depth > 1:
            self.names.add(tag)

    def text(self, text: str) -> None:
        if self.open:
            self.open[-1].texts.append(text)

    def end(self, name: str) -> None:
        self.depth -= 1
        if not self.open:
            return
        done = self.open.pop()
        if self.open:
            self.open[-1].values.setdefault(done.name, []).append(done.value())
            return
        value = done.value()
        row = value if isinstance(value, dict) else {TEXT: value}
        shaped = {key: _shaped(one, self.kinds.get(key.lower())) for key, one in row.items()}
        self.out.write(json.dumps(shaped, ensure_ascii=False) + "\n")
        self.count += 1


def lines(file: File, scratch: Scratch, row_tag: str | None, columns: "Sequence[Column]" = ()) -> File | None:
    """Return a file of JSON lines in the place of XML; None where it has no rows.

    A column that is declared as an array, a struct or a map has that shape, though there be just one element.
    """
    target = scratch.fresh("rows.jsonl")
    with target.open("w", encoding="utf-8") as out:
        rows = _Rows(row_tag, out, _kinds(columns))
        _parse(file, rows)
    if not rows.count and rows.names and row_tag:
        close = nearest(row_tag, sorted(rows.names)) or min(rows.names)
        what = f"{file.name} has no element <{row_tag}>; it has <{close}>"
        raise Mistake("LOAD_XML", what, at=file.name, fix=f"name the element of a row: row_tag={shown(close)}")
    return scratch.instead(file, Path(target)) if rows.count else None


def _parse(file: File, rows: _Rows) -> None:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = rows.start, rows.end
    parser.CharacterDataHandler = rows.text
    parser.EntityDeclHandler = _refuse_entity
    try:
        with whole(file.name, file.path), opened(file) as stream:
            while chunk := stream.read(_CHUNK):
                parser.Parse(chunk, False)
        parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        why = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
        line = parser.CurrentLineNumber
        what = f"{file.name} can't be read as XML: {why} in line {line}"
        fix = "write it again without entities" if isinstance(error, _Entity) else "write it again; is it complete?"
        raise Mistake("LOAD_XML", what, at=f"{file.name}:{line}", fix=fix) from error


class _Entity(ValueError):
    """An entity is declared."""


def _refuse_entity(name: str, *rest: object) -> None:
    raise _Entity(f"it declares the entity {shown(name)}, and entities are refused")


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _kinds(columns: "Sequence[Column]") -> dict[str, Any]:
    """Return the types of columns that are not one value, by name."""
    from runnel.connect.iceberg_types import field_of

    fields = [field_of(column) for column in columns]
    return {field.name.lower(): field.field_type for field in fields if not field.field_type.is_primitive}


def _shaped(value: Any, kind: Any) -> Any:
    """Return a value in the form of its type. Without one it stays as it is."""
    from pyiceberg.types import ListType, MapType, StructType

    if kind is None or value is None:
        return value
    if isinstance(kind, ListType):
        many = value if isinstance(value, list) else [value]
        only = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else None
        if isinstance(only, list | dict) and not isinstance(kind.element_type, StructType | MapType):
            many = only if isinstance(only, list) else [only]
        elif only is not None and not _fits(value, kind.element_type):
            many = only if isinstance(only, list) else [only]  # <items><item/><item/></items>
        return [_shaped(one, kind.element_type) for one in many]
    if isinstance(kind, StructType):
        given = {key.lower(): one for key, one in value.items()} if isinstance(value, dict) else {TEXT: value}
        return {field.name: _shaped(given.get(field.name.lower()), field.field_type) for field in kind.fields}
    if isinstance(kind, MapType):
        return {key: _shaped(one, kind.value_type) for key, one in value.items()} if isinstance(value, dict) else value
    return value


def _fits(value: dict[str, Any], kind: Any) -> bool:
    """Tell whether an element is one of a list itself, not the element around the list."""
    from pyiceberg.types import StructType

    return isinstance(kind, StructType) and any(f.name.lower() in {k.lower() for k in value} for f in kind.fields)
