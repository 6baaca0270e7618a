"""The types of columns as users write them: Spark's, such as `order_id long not null, amount decimal(12,2)`.

Pure: text in, values out. What a type becomes in Iceberg, Spark or DuckDB is the business of their rooms.
"""

import re
from dataclasses import dataclass

from runnel.errors import Mistake
from runnel.names import shown

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
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
SIMPLE = (*_NUMBERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
MOST_DIGITS = 38
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|[A-Za-z_][\w$]*|\d+|[^\w\s])")


@dataclass(frozen=True)
class SparkType:
    """A type of Spark's. `children` are an array's element, a map's key and value, or a struct's fields."""

    kind: str
    precision: int = 0
    scale: int = 0
    children: tuple["Column", ...] = ()

    def __str__(self) -> str:
        """Return it as Spark writes it, such as `array<decimal(12,2)>`."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            return "struct<" + ", ".join(f"{child.name}: {child.type}" for child in self.children) + ">"
        return f"{self.kind}<{', '.join(str(child.type) for child in self.children)}>" if self.children else self.kind


@dataclass(frozen=True)
class Column:
    """A named type: a column of a table or a field of a struct. A `required` one is never null."""

    name: str
    type: SparkType
    required: bool = False
    comment: str | None = None


def columns(text: str) -> tuple[Column, ...]:
    """Return the columns that a schema lists.

    >>> [(column.name, str(column.type)) for column in columns("id long not null, `a b`: array<int>")]
    [('id', 'bigint'), ('a b', 'array<int>')]
    """
    reader = _Reader(text)
    found = reader.columns(end=None)
    seen: set[str] = set()
    for column in found:
        if column.name.lower() in seen:
            raise reader.wrong(f"the column {shown(column.name)} stands twice in the schema")
        seen.add(column.name.lower())
    return found


def spark_type(text: str) -> SparkType:
    """Return the type that `text` names.

    >>> spark_type("map<string, struct<x: decimal(12,2)>>").kind
    'map'
    """
    reader = _Reader(text)
    found = reader.type()
    reader.expect_end()
    return found


class _Reader:
    """Reads the words of a schema from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = _TOKEN.findall(text)
        self.at = 0

    def peek(self) -> str | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def take(self, *wanted: str) -> bool:
        """Step over the next words if they are these."""
        following = [word.lower() for word in self.words[self.at : self.at + len(wanted)]]
        if following != list(wanted):
            return False
        self.at += len(wanted)
        return True

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            raise self.wrong(f"the schema {shown(self.text)} has {self.here()} where `{wanted}` was expected")

    def expect_end(self) -> None:
        if self.peek() is not None:
            raise self.wrong(f"the schema {shown(self.text)} has {self.here()} where it should end")

    def columns(self, end: str | None) -> tuple[Column, ...]:
        found = [self.column()]
        while self.take(","):
            found.append(self.column())
        if end is None:
            self.expect_end()
        else:
            self.expect(end)
        return tuple(found)

    def column(self) -> Column:
        name = self.name()
        self.take(":")
        kind = self.type()
        required = self.take("not", "null")
        if not required:
            self.take("null")
        return Column(name, kind, required, self.comment() if self.take("comment") else None)

    def name(self) -> str:
        word = self.peek()
        if word is None or not (word[0] in "`_" or word[0].isalpha()):
            raise self.wrong(f"the schema {shown(self.text)} has {self.here()} where a column's name was expected")
        self.at += 1
        name = word[1:-1].replace("``", "`") if word[0] == "`" else word
        if not name.strip():
            raise self.wrong(f"the schema {shown(self.text)} has a column without a name")
        return name

    def comment(self) -> str:
        word = self.peek()
        if word is None or word[0] != "'":
            raise self.wrong(f"the schema {shown(self.text)} has {self.here()} where a quoted comment was expected")
        self.at += 1
        return re.sub(r"\\(.)", r"\1", word[1:-1])

    def type(self) -> SparkType:
        word = self.peek()
        kind = SYNONYMS.get((word or "").lower(), (word or "").lower())
        self.at += 1
        if kind == "decimal":
            return self.decimal()
        if kind in ("array", "map", "struct"):
            return self.nested(kind)
        if kind not in SIMPLE:
            self.at -= 1
            raise self.wrong(f"the schema {shown(self.text)} has {self.here()} where a type was expected")
        if kind == "string" and self.take("("):  # varchar(10): Iceberg's strings have no length
            self.number()
            self.expect(")")
        return SparkType(kind)

    def decimal(self) -> SparkType:
        precision, scale = 10, 0
        if self.take("("):
            precision = self.number()
            scale = self.number() if self.take(",") else 0
            self.expect(")")
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            raise self.wrong(f"decimal({precision},{scale}) is no type: 1 to {MOST_DIGITS} digits, scale within them")
        return SparkType("decimal", precision, scale)

    def number(self) -> int:
        word = self.peek() or ""
        if not word.isdigit():
            raise self.wrong(f"the schema {shown(self.text)} has {self.here()} where a number was expected")
        self.at += 1
        return int(word)

    def nested(self, kind: str) -> SparkType:
        self.expect("<")
        if kind == "struct":
            return SparkType(kind, children=self.columns(end=">"))
        names = ("element",) if kind == "array" else ("key", "value")
        children: list[Column] = []
        for name in names:
            if children:
                self.expect(",")
            children.append(Column(name, self.type()))
        self.expect(">")
        return SparkType(kind, children=tuple(children))

    def here(self) -> str:
        word = self.peek()
        return "its end" if word is None else shown(word)

    def wrong(self, what: str) -> Mistake:
        fix = "write it as Spark does: order_id long not null, day date, amount decimal(12,2), tags array<string>"
        return Mistake("SCHEMA_SYNTAX", what, fix=fix)
