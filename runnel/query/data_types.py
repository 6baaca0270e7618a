"""The types of columns and values, with their names in Spark and in DuckDB. Pure."""

import re
from dataclasses import dataclass, field

from runnel.errors import Mistake
from runnel.names import quote_value

INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Integer types, narrow to wide, with the number of decimal digits that Spark assigns to them."""

_DUCKDB_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "void": "INTEGER",
}
_SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_SYNONYMS |= {"timestamp_ltz": "timestamp", "timestamptz": "timestamp", "dec": "decimal", "numeric": "decimal"}
_WORD = re.compile(r"\s*([A-Za-z_]+)\s*")
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^:`<>,\s]+))\s*:\s*")
_DECIMAL = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


@dataclass(frozen=True)
class DataType:
    """A Spark type: its kind, and the parameters of that kind.

    `children` are the element of an array, the key and value of a map, the fields of a struct; `names` the names of
    those fields.
    """

    kind: str
    precision: int = 0
    scale: int = 0
    children: tuple["DataType", ...] = ()
    names: tuple[str, ...] = field(default=())

    @property
    def is_integral(self) -> bool:
        """Tell whether it is an integer type."""
        return self.kind in INTEGRAL_DIGITS

    @property
    def is_floating(self) -> bool:
        """Tell whether it is a float or a double."""
        return self.kind in ("float", "double")

    @property
    def is_numeric(self) -> bool:
        """Tell whether it is a number."""
        return self.kind == "decimal" or self.kind in INTEGRAL_DIGITS or self.is_floating

    @property
    def is_atomic(self) -> bool:
        """Tell whether it is not an array, a map or a struct."""
        return self.kind not in ("array", "map", "struct")

    def __str__(self) -> str:
        """Return Spark's short form, such as `array<decimal(12,2)>`."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            return "struct<" + ",".join(f"{n}:{t}" for n, t in zip(self.names, self.children, strict=True)) + ">"
        return f"{self.kind}<{','.join(map(str, self.children))}>" if self.children else self.kind

    @property
    def duckdb_type(self) -> str:
        """Return the DuckDB type that holds its values."""
        if self.kind == "decimal":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.kind == "array":
            return f"{self.children[0].duckdb_type}[]"
        if self.kind == "map":
            return f"MAP({self.children[0].duckdb_type}, {self.children[1].duckdb_type})"
        if self.kind == "struct":
            fields = (f"{quote_identifier(n)} {t.duckdb_type}" for n, t in zip(self.names, self.children, strict=True))
            return f"STRUCT({', '.join(fields)})"
        return _DUCKDB_TYPES[self.kind]


def quote_identifier(name: str) -> str:
    """Return `name` as a DuckDB identifier.

    >>> quote_identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def decimal(precision: int, scale: int) -> DataType:
    """Return a decimal type."""
    return DataType("decimal", precision, scale)


def array_type(element: DataType) -> DataType:
    """Return an array type."""
    return DataType("array", children=(element,))


BOOLEAN, INT, BIGINT = DataType("boolean"), DataType("int"), DataType("bigint")
DOUBLE, STRING, DATE, TIMESTAMP = DataType("double"), DataType("string"), DataType("date"), DataType("timestamp")
VOID = DataType("void")


def parse_spark_type(text: str) -> DataType:
    """Parse a type in Spark's syntax.

    >>> parse_spark_type("array<struct<a:int,b:decimal(12,2)>>").duckdb_type
    'STRUCT("a" INTEGER, "b" DECIMAL(12,2))[]'
    """
    data_type, end = _parse_type(text, 0)
    if text[end:].strip():
        raise _describe_unknown_type(text)
    return data_type


def _parse_type(text: str, position: int) -> tuple[DataType, int]:
    word = _WORD.match(text, position)
    if not word:
        raise _describe_unknown_type(text)
    kind = _SYNONYMS.get(word[1].lower(), word[1].lower())
    position = word.end()
    if kind == "decimal":
        sizes = _DECIMAL.match(text, position)
        return (decimal(int(sizes[1]), int(sizes[2] or 0)), sizes.end()) if sizes else (decimal(10, 0), position)
    if kind in ("varchar", "char"):
        sizes = _DECIMAL.match(text, position)
        return STRING, sizes.end() if sizes else position
    if kind in ("array", "map", "struct"):
        return _parse_nested_type(text, position, kind)
    if kind not in _DUCKDB_TYPES:
        raise _describe_unknown_type(text)
    return DataType(kind), position


def _parse_nested_type(text: str, position: int, kind: str) -> tuple[DataType, int]:
    children: list[DataType] = []
    names: list[str] = []
    if text[position : position + 1] != "<":
        raise _describe_unknown_type(text)
    while text[position : position + 1] in ("<", ","):
        position += 1
        if kind == "struct":
            name = _NAME.match(text, position)
            if not name:
                raise _describe_unknown_type(text)
            names.append(name[1].replace("``", "`") if name[1] else name[2])
            position = name.end()
        child, position = _parse_type(text, position)
        children.append(child)
    if text[position : position + 1] != ">" or len(children) != {"array": 1, "map": 2}.get(kind, len(children)):
        raise _describe_unknown_type(text)
    position += 1
    return DataType(kind, children=tuple(children), names=tuple(names)), position + (
        len(text[position:]) - len(text[position:].lstrip())
    )


def _describe_unknown_type(text: str) -> Mistake:
    return Mistake("SQL_TYPE", f"{quote_value(text)} is not a type", fix="write a Spark type, such as decimal(12,2)")
