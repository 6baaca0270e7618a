"""Convert XML to JSON lines: every element with the row tag is a row; its attributes and children are columns.

The file is read as a stream. Entity declarations are refused: they can expand without bounds or read other files.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from runnel.connect.files.compression import describe_read_errors
from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.files.scratch_files import ScratchFiles, open_file
from runnel.errors import Mistake, find_nearest
from runnel.names import quote_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.declare.model.column_types import Column

TEXT_COLUMN = "value"  # holds the text of an element that also has attributes or children
_CHUNK = 1 << 18
_MAX_DEPTH = 100


class _Element:
    """An element of a row that is being read."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.is_nil = attributes.pop("nil", "").lower() in ("true", "1")
        self.values: dict[str, list[Any]] = {key: [value] for key, value in attributes.items()}
        self.texts: list[str] = []

    def to_value(self) -> Any:
        text = "".join(self.texts).strip()
        if not self.values:
            return text if text and not self.is_nil else None
        values = {key: items[0] if len(items) == 1 else items for key, items in self.values.items()}
        return {**values, TEXT_COLUMN: text} if text else values


class _RowHandlers:
    """The handlers of the XML parser, which write rows."""

    def __init__(self, row_tag: str | None, out: Any, kinds: "Mapping[str, Any]") -> None:
        self.row_tag = row_tag
        self.out = out
        self.kinds = kinds
        self.depth = 0
        self.count = 0
        self.open_elements: list[_Element] = []
        self.names: set[str] = set()

    def handle_start(self, name: str, attributes: dict[str, str]) -> None:
        tag = _strip_prefix(name)
        self.depth += 1
        is_row = tag == self.row_tag or name == self.row_tag if self.row_tag else self.depth == 2
        if self.open_elements or is_row:
            if len(self.open_elements) >= _MAX_DEPTH:
                raise ValueError(f"elements are nested more than {_MAX_DEPTH} deep")
            local_attributes = {
                _strip_prefix(key): text for key, text in attributes.items() if not key.startswith("xmlns")
            }
            self.open_elements.append(_Element(tag, local_attributes))
        elif len(self.names) < 1000 and self.depth > 1:
            self.names.add(tag)

    def handle_text(self, text: str) -> None:
        if self.open_elements:
            self.open_elements[-1].texts.append(text)

    def handle_end(self, _name: str) -> None:
        self.depth -= 1
        if not self.open_elements:
            return
        element = self.open_elements.pop()
        if self.open_elements:
            self.open_elements[-1].values.setdefault(element.name, []).append(element.to_value())
            return
        value = element.to_value()
        row = value if isinstance(value, dict) else {TEXT_COLUMN: value}
        shaped_row = {key: _shape_value(column_value, self.kinds.get(key.lower())) for key, column_value in row.items()}
        self.out.write(json.dumps(shaped_row, ensure_ascii=False) + "\n")
        self.count += 1


def to_json_lines(
    file: LocalFile, scratch: ScratchFiles, row_tag: str | None, columns: "Sequence[Column]" = ()
) -> LocalFile | None:
    """Convert an XML file to JSON lines and return the file; None if it has no rows.

    A column that is declared as an array, a struct or a map has that shape even if there is just one element.
    """
    target = scratch.new_path("rows.jsonl")
    with target.open("w", encoding="utf-8") as out:
        rows = _RowHandlers(row_tag, out, _find_nested_types(columns))
        _parse_file(file, rows)
    if not rows.count and rows.names and row_tag:
        close = find_nearest(row_tag, sorted(rows.names)) or min(rows.names)
        what = f"{file.name} has no element <{row_tag}>; it has <{close}>"
        raise Mistake("LOAD_XML", what, at=file.name, fix=f"name the element of a row: --row-tag {close}")
    return scratch.replace_file(file, Path(target)) if rows.count else None


def _parse_file(file: LocalFile, rows: _RowHandlers) -> None:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = rows.handle_start, rows.handle_end
    parser.CharacterDataHandler = rows.handle_text
    parser.EntityDeclHandler = _refuse_entity
    try:
        with describe_read_errors(file.name, file.path), open_file(file) as stream:
            while chunk := stream.read(_CHUNK):
                parser.Parse(chunk, False)
        parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        why = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
        line = parser.CurrentLineNumber
        what = f"{file.name} can't be read as XML: {why} in line {line}"
        fix = (
            "write it again without entities"
            if isinstance(error, _EntityDeclared)
            else "write it again; is it complete?"
        )
        raise Mistake("LOAD_XML", what, at=f"{file.name}:{line}", fix=fix) from error


class _EntityDeclared(ValueError):
    """The document declares an entity."""


def _refuse_entity(name: str, *_details: object) -> None:
    raise _EntityDeclared(f"it declares the entity {quote_value(name)}, and entities are refused")


def _strip_prefix(name: str) -> str:
    return name.rpartition(":")[2]


def _find_nested_types(columns: "Sequence[Column]") -> dict[str, Any]:
    """Return the types of the columns with nested types, by name."""
    from runnel.connect.iceberg_types import to_iceberg_field

    fields = [to_iceberg_field(column) for column in columns]
    return {field.name.lower(): field.field_type for field in fields if not field.field_type.is_primitive}


def _shape_value(value: Any, kind: Any) -> Any:
    """Return a value in the shape of its type; without a type it is unchanged."""
    from pyiceberg.types import ListType, MapType, StructType

    if kind is None or value is None:
        return value
    if isinstance(kind, ListType):
        items = value if isinstance(value, list) else [value]
        single_value = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else None
        if isinstance(single_value, list | dict) and not isinstance(kind.element_type, StructType | MapType):
            items = single_value if isinstance(single_value, list) else [single_value]
        elif single_value is not None and not _is_list_element(value, kind.element_type):
            items = single_value if isinstance(single_value, list) else [single_value]  # <items><item/><item/></items>
        return [_shape_value(item, kind.element_type) for item in items]
    if isinstance(kind, StructType):
        values_by_name = (
            {key.lower(): item for key, item in value.items()} if isinstance(value, dict) else {TEXT_COLUMN: value}
        )
        return {
            field.name: _shape_value(values_by_name.get(field.name.lower()), field.field_type) for field in kind.fields
        }
    if isinstance(kind, MapType):
        return (
            {key: _shape_value(item, kind.value_type) for key, item in value.items()}
            if isinstance(value, dict)
            else value
        )
    return value


def _is_list_element(value: dict[str, Any], kind: Any) -> bool:
    """Tell whether a value is itself an element of the list, not the wrapper around the list."""
    from pyiceberg.types import StructType

    return isinstance(kind, StructType) and any(f.name.lower() in {k.lower() for k in value} for f in kind.fields)
