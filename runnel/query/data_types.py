"""The types of columns and values, as Spark names them and as DuckDB holds them. Pure."""

import re
from dataclasses import dataclass, field

from runnel.errors import Mistake
from runnel.names import shown

INTEGRAL = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Whole numbers, narrow to wide, with the decimal digits that Spark gives them."""

_DUCKDB = {
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
    """A Spark type: its kind, and what belongs to that kind.

    `children` are the element of an array, the key and value of a map, the fields of a struct; `names` the names of
    those fields.
    """

    kind: str
    precision: int = 0
    scale: int = 0
    children: tuple["DataType", ...] = ()
    names: tuple[str, ...] = field(default=())

    @property
    def integral(self) -> bool:
        """Tell whether it is a whole number."""
        return self.kind in INTEGRAL

    @property
    def floating(self) -> bool:
        """Tell whether it is a float or a double."""
        return self.kind in ("float", "double")

    @property
    def numeric(self) -> bool:
        """Tell whether it is a number."""
        return self.kind == "decimal" or self.kind in INTEGRAL or self.floating

    @property
    def atomic(self) -> bool:
        """Tell whether it holds no other values."""
        return self.kind not in ("array", "map", "struct")

    def __str__(self) -> str:
        """Return Spark's short form, such as `array<decimal(12,2)>`."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            return "struct<" + ",".join(f"{n}:{t}" for n, t in zip(self.names, self.children, strict=True)) + ">"
        return f"{self.kind}<{','.join(map(str, self.children))}>" if self.children else self.kind

    @property
    def duckdb(self) -> str:
        """Return the DuckDB type that holds its values."""
        if self.kind == "decimal":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.kind == "array":
            return f"{self.children[0].duckdb}[]"
        if self.kind == "map":
            return f"MAP({self.children[0].duckdb}, {self.children[1].duckdb})"
        if self.kind == "struct":
            fields = (f"{quoted(n)} {t.duckdb}" for n, t in zip(self.names, self.children, strict=True))
            return f"STRUCT({', '.join(fields)})"
        return _DUCKDB[self.kind]


def quoted(name: str) -> str:
    """Return `name` as a DuckDB identifier.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def decimal(precision: int, scale: int) -> DataType:
    """Return a decimal type."""
    return DataType("decimal", precision, scale)


def array(element: DataType) -> DataType:
    """Return an array type."""
    return DataType("array", children=(element,))


BOOLEAN, INT, BIGINT = DataType("boolean"), DataType("int"), DataType("bigint")
DOUBLE, STRING, DATE, TIMESTAMP = DataType("double"), DataType("string"), DataType("date"), DataType("timestamp")
VOID = DataType("void")


def spark_type(text: str) -> DataType:
    """Return the type that Spark writes as `text`.

    >>> spark_type("array<struct<a:int,b:decimal(12,2)>>").duckdb
    'STRUCT("a" INTEGER, "b" DECIMAL(12,2))[]'
    """
    found, end = _read(text, 0)
    if text[end:].strip():
        raise _unknown(text)
    return found


def _read(text: str, at: int) -> tuple[DataType, int]:
    word = _WORD.match(text, at)
    if not word:
        raise _unknown(text)
    kind = _SYNONYMS.get(word[1].lower(), word[1].lower())
    at = word.end()
    if kind == "decimal":
        sizes = _DECIMAL.match(text, at)
        return (decimal(int(sizes[1]), int(sizes[2] or 0)), sizes.end()) if sizes else (decimal(10, 0), at)
    if kind in ("varchar", "char"):
        sizes = _DECIMAL.match(text, at)
        return STRING, sizes.end() if sizes else at
    if kind in ("array", "map", "struct"):
        return _read_nested(text, at, kind)
    if kind not in _DUCKDB:
        raise _unknown(text)
    return DataType(kind), at


def _read_nested(text: str, at: int, kind: str) -> tuple[DataType, int]:
    children: list[DataType] = []
    names: list[str] = []
    if text[at : at + 1] != "<":
        raise _unknown(text)
    while text[at : at + 1] in ("<", ","):
        at += 1
        if kind == "struct":
            name = _NAME.match(text, at)
            if not name:
                raise _unknown(text)
            names.append(name[1].replace("``", "`") if name[1] else name[2])
            at = name.end()
        child, at = _read(text, at)
        children.append(child)
    if text[at : at + 1] != ">" or len(children) != {"array": 1, "map": 2}.get(kind, len(children)):
        raise _unknown(text)
    at += 1
    return DataType(kind, children=tuple(children), names=tuple(names)), at + (len(text[at:]) - len(text[at:].lstrip()))


def _unknown(text: str) -> Mistake:
    return Mistake("SQL_TYPE", f"{shown(text)} is not a type", fix="write a Spark type, such as decimal(12,2)")
