"""Schemas as users write them."""

import pytest

from runnel.declare.model.column_types import parse_columns, parse_type
from runnel.errors import Mistake

GOOD = {
    "id long, day date": "id bigint|day date",
    "ID INT NOT NULL, v string null": "ID int!|v string",
    "a: int, `b c` decimal(12,2)": "a int|b c decimal(12,2)",
    "d decimal, n numeric(5)": "d decimal(10,0)|n decimal(5,0)",
    "v varchar(10) comment 'it\\'s', t timestamp_ltz": "v string|t timestamp",
    "t timestamp_ntz, b binary, x boolean": "t timestamp_ntz|b binary|x boolean",
    "a array<map<string, struct<x: int, y decimal(3,1)>>>": "a array<map<string, struct<x: int, y: decimal(3,1)>>>",
    "`we``ird` tinyint": "we`ird tinyint",
    "öl int, été struct<ärger: int>": "öl int|été struct<ärger: int>",
}


@pytest.mark.parametrize(("text", "expected"), GOOD.items(), ids=GOOD)
def test_schemas(text, expected):
    found = parse_columns(text)
    assert (
        "|".join(f"{column.name} {column.type.schema_text}{'!' if column.required else ''}" for column in found)
        == expected
    )


BAD = ["", "id", "id long,", "id long day date", "id longg", "id decimal(40,2)", "id decimal(4,5)", "id decimal(x)"]
BAD += ["a array<int", "a map<int>", "a struct<>", "id int, ID int", "`` int", "id int not", "1 int", "a int comment x"]
BAD += ["d decimal(²)"]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_schema(text):
    with pytest.raises(Mistake) as caught:
        parse_columns(text)
    assert caught.value.code == "SCHEMA_SYNTAX"
    assert caught.value.fix


TEXTS = {
    "decimal(12,2)": ("decimal(12,2)", "decimal(12,2)"),
    "map<string, array<int>>": ("map<string,array<int>>", "map<string, array<int>>"),
    "struct<a: int, b: struct<c: date>>": ("struct<a:int,b:struct<c:date>>", "struct<a: int, b: struct<c: date>>"),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.items(), ids=TEXTS)
def test_queries_write_types_short_and_schemas_with_spaces(text, expected):
    data_type = parse_type(text)
    assert (str(data_type), data_type.schema_text) == expected
    assert parse_type(str(data_type)) == parse_type(data_type.schema_text) == data_type
