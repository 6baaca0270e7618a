"""Spark's types, as schemas declare them and queries use them, and the parser of their syntax.

Pure: text in, values out. Other packages convert types to those of Iceberg, Arrow, Spark and DuckDB.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runnel.errors import Mistake
from runnel.names import quote_value

SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
    "varchar": "string",
    "char": "string",
    "character": "string",
    "text": "string",
}
INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Integer types, narrow to wide, with the number of decimal digits that Spark assigns to them."""
SIMPLE = (*INTEGRAL_DIGITS, "float", "double", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
MAX_DIGITS = 38
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|[^\W\d][\w$]*|\d+|[^\w\s])")


@dataclass(frozen=True)
class SparkType:
    """A Spark type. `children` are an array's element, a map's key and value, or a struct's fields.

    Lakes store fingerprints of its `repr`: fields and their order stay.
    """

    kind: str
    precision: int = 0
    scale: int = 0
    children: tuple["Column", ...] = ()

    @property
    def is_integral(self) -> bool:
        """Return whether it is an integer type."""
        return self.kind in INTEGRAL_DIGITS

    @property
    def is_floating(self) -> bool:
        """Return whether it is a float or a double."""
        return self.kind in ("float", "double")

    @property
    def is_numeric(self) -> bool:
        """Return whether it is a number."""
        return self.kind == "decimal" or self.kind in INTEGRAL_DIGITS or self.is_floating

    @property
    def is_atomic(self) -> bool:
        """Return whether it is not an array, a map or a struct."""
        return self.kind not in ("array", "map", "struct")

    def __str__(self) -> str:
        """Return Spark's short form, such as `struct<a:int,b:decimal(12,2)>`."""
        return self._format(",", ":")

    @property
    def schema_text(self) -> str:
        """Return the type as users write it in a schema, such as `struct<a: int, b: decimal(12,2)>`."""
        return self._format(", ", ": ")

    def _format(self, comma: str, colon: str) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.is_atomic:
            return self.kind
        parts = [child.type._format(comma, colon) for child in self.children]
        if self.kind == "struct":
            parts = [f"{child.name}{colon}{part}" for child, part in zip(self.children, parts, strict=True)]
        return f"{self.kind}<{comma.join(parts)}>"


@dataclass(frozen=True)
class Column:
    """A named type: a column of a table or a field of a struct. A `required` one is never null."""

    name: str
    type: SparkType
    required: bool = False
    comment: str | None = None


def decimal(precision: int, scale: int) -> SparkType:
    """Return a decimal type."""
    return SparkType("decimal", precision, scale)


def array_type(element: SparkType) -> SparkType:
    """Return an array type."""
    return SparkType("array", children=(Column("element", element),))


def map_type(key: SparkType, value: SparkType) -> SparkType:
    """Return a map type."""
    return SparkType("map", children=(Column("key", key), Column("value", value)))


def struct_type(fields: Iterable[tuple[str, SparkType]]) -> SparkType:
    """Return a struct type of nullable fields."""
    return SparkType("struct", children=tuple(Column(name, field_type) for name, field_type in fields))


def format_ddl(data_type: SparkType) -> str:
    """Return a type in the syntax of Spark's CAST and schemas, with quoted field names.

    >>> format_ddl(struct_type([("a b", SparkType("string"))]))
    'struct<`a b`: string>'
    """
    if data_type.is_atomic:
        return str(data_type)
    parts = [format_ddl(child.type) for child in data_type.children]
    if data_type.kind == "struct":
        names = (child.name.replace("`", "``") for child in data_type.children)
        parts = [f"`{name}`: {part}" for name, part in zip(names, parts, strict=True)]
    return f"{data_type.kind}<{', '.join(parts)}>"


def parse_columns(text: str) -> tuple[Column, ...]:
    """Return the columns that a schema lists.

    >>> [(column.name, str(column.type)) for column in parse_columns("id long not null, `a b`: array<int>")]
    [('id', 'bigint'), ('a b', 'array<int>')]
    """
    parser = _SchemaParser(text)
    parsed_columns = parser.parse_columns(end=None)
    seen_names: set[str] = set()
    for column in parsed_columns:
        if column.name.lower() in seen_names:
            raise parser.syntax_error(f"the column {quote_value(column.name)} is in the schema twice")
        seen_names.add(column.name.lower())
    return parsed_columns


def parse_type(text: str) -> SparkType:
    """Return the type that `text` names.

    >>> parse_type("map<string, struct<x: decimal(12,2)>>").kind
    'map'
    """
    parser = _SchemaParser(text)
    parsed_type = parser.parse_type()
    parser.expect_end()
    return parsed_type


def parse_json_type(type_json: Any) -> SparkType:
    """Parse the JSON form of a type, which Spark writes; a type that no table holds keeps its name as `kind`.

    >>> str(parse_json_type({"type": "array", "elementType": "decimal(12,2)", "containsNull": True}))
    'array<decimal(12,2)>'
    """
    if isinstance(type_json, str):
        name, _, arguments = type_json.partition("(")
        if name == "decimal":
            precision, scale = arguments.rstrip(")").split(",")
            return decimal(int(precision), int(scale))
        return SparkType(SYNONYMS.get(name, type_json))
    kind = str(type_json["type"])
    if kind == "array":
        return array_type(parse_json_type(type_json["elementType"]))
    if kind == "map":
        return map_type(parse_json_type(type_json["keyType"]), parse_json_type(type_json["valueType"]))
    if kind == "struct":
        return struct_type((field["name"], parse_json_type(field["type"])) for field in type_json["fields"])
    return SparkType(kind)


class _SchemaParser:
    """Parses the tokens of a schema from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _TOKEN.findall(text)
        self.position = 0

    def peek(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def accept(self, *expected: str) -> bool:
        """Skip the next tokens if they are the expected ones, and return whether they are."""
        next_tokens = [token.lower() for token in self.tokens[self.position : self.position + len(expected)]]
        if next_tokens != list(expected):
            return False
        self.position += len(expected)
        return True

    def expect(self, expected: str) -> None:
        if not self.accept(expected):
            raise self.syntax_error(
                f"the schema {quote_value(self.text)} has {self.describe_next_token()} where `{expected}` was expected"
            )

    def expect_end(self) -> None:
        if self.peek() is not None:
            raise self.syntax_error(
                f"the schema {quote_value(self.text)} has {self.describe_next_token()} where it should end"
            )

    def parse_columns(self, end: str | None) -> tuple[Column, ...]:
        parsed_columns = [self.parse_column()]
        while self.accept(","):
            parsed_columns.append(self.parse_column())
        if end is None:
            self.expect_end()
        else:
            self.expect(end)
        return tuple(parsed_columns)

    def parse_column(self) -> Column:
        name = self.parse_name()
        self.accept(":")
        kind = self.parse_type()
        required = self.accept("not", "null")
        if not required:
            self.accept("null")
        return Column(name, kind, required, self.parse_comment() if self.accept("comment") else None)

    def parse_name(self) -> str:
        token = self.peek()
        if token is None or not (token[0] in "`_" or token[0].isalpha()):
            raise self.syntax_error(
                f"the schema {quote_value(self.text)} has {self.describe_next_token()} "
                "where a column's name was expected"
            )
        self.position += 1
        name = token[1:-1].replace("``", "`") if token[0] == "`" else token
        if not name.strip():
            raise self.syntax_error(f"the schema {quote_value(self.text)} has a column without a name")
        return name

    def parse_comment(self) -> str:
        token = self.peek()
        if token is None or token[0] != "'":
            raise self.syntax_error(
                f"the schema {quote_value(self.text)} has {self.describe_next_token()} "
                "where a quoted comment was expected"
            )
        self.position += 1
        return re.sub(r"\\(.)", r"\1", token[1:-1])

    def parse_type(self) -> SparkType:
        token = self.peek()
        kind = SYNONYMS.get((token or "").lower(), (token or "").lower())
        self.position += 1
        if kind == "decimal":
            return self.parse_decimal()
        if kind in ("array", "map", "struct"):
            return self.parse_nested(kind)
        if kind not in SIMPLE:
            self.position -= 1
            raise self.syntax_error(
                f"the schema {quote_value(self.text)} has {self.describe_next_token()} where a type was expected"
            )
        if kind == "string" and self.accept("("):  # varchar(10): Iceberg's strings have no length
            self.parse_number()
            self.expect(")")
        return SparkType(kind)

    def parse_decimal(self) -> SparkType:
        precision, scale = 10, 0
        if self.accept("("):
            precision = self.parse_number()
            scale = self.parse_number() if self.accept(",") else 0
            self.expect(")")
        if not 1 <= precision <= MAX_DIGITS or scale > precision:
            raise self.syntax_error(
                f"decimal({precision},{scale}) is not a type: 1 to {MAX_DIGITS} digits, scale within them"
            )
        return decimal(precision, scale)

    def parse_number(self) -> int:
        token = self.peek() or ""
        if not token.isdecimal():
            raise self.syntax_error(
                f"the schema {quote_value(self.text)} has {self.describe_next_token()} where a number was expected"
            )
        self.position += 1
        return int(token)

    def parse_nested(self, kind: str) -> SparkType:
        self.expect("<")
        if kind == "struct":
            return SparkType(kind, children=self.parse_columns(end=">"))
        first = self.parse_type()
        if kind == "map":
            self.expect(",")
        nested_type = array_type(first) if kind == "array" else map_type(first, self.parse_type())
        self.expect(">")
        return nested_type

    def describe_next_token(self) -> str:
        token = self.peek()
        return "its end" if token is None else quote_value(token)

    def syntax_error(self, what: str) -> Mistake:
        fix = "write it as Spark does: order_id long not null, day date, amount decimal(12,2), tags array<string>"
        return Mistake("SCHEMA_SYNTAX", what, fix=fix)
