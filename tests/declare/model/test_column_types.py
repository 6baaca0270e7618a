"""Schemas as users write them."""

import pytest

from runnel.declare.model.column_types import parse_columns
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
    assert "|".join(f"{column.name} {column.type}{'!' if column.required else ''}" for column in found) == expected


BAD = ["", "id", "id long,", "id long day date", "id longg", "id decimal(40,2)", "id decimal(4,5)", "id decimal(x)"]
BAD += ["a array<int", "a map<int>", "a struct<>", "id int, ID int", "`` int", "id int not", "1 int", "a int comment x"]
BAD += ["d decimal(²)"]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_schema(text):
    with pytest.raises(Mistake) as caught:
        parse_columns(text)
    assert caught.value.code == "SCHEMA_SYNTAX"
    assert caught.value.fix
