"""The texts of declared schemas, of which lakes store fingerprints: another text computes every result again."""

from pathlib import Path

import pytest

from runnel.declare.model.column_types import parse_columns
from runnel.declare.model.endpoints import Files, Manual
from runnel.declare.model.flow import Source
from runnel.declare.model.source_location import SourceLocation
from runnel.names import TableName
from runnel.plan.fingerprint.declared_options import fingerprint_source
from runnel.plan.fingerprint.project_files import ProjectFiles
from runnel.plan.fingerprint.stable_values import ValueWriter

COLUMN, TYPE = "class:runnel.declare.types.Column", "class:runnel.declare.types.SparkType"
SCHEMAS = {
    "id long not null comment 'key'": (
        "(Column(name='id', type=SparkType(kind='bigint', precision=0, scale=0, children=()), "
        "required=True, comment='key'),)",
        f"tuple[{COLUMN}[str:'id',{TYPE}[str:'bigint',int:0,int:0,tuple[]],bool:True,str:'key']]",
    ),
    "a array<decimal(12,2)>": (
        "(Column(name='a', type=SparkType(kind='array', precision=0, scale=0, children=("
        "Column(name='element', type=SparkType(kind='decimal', precision=12, scale=2, children=()), "
        "required=False, comment=None),)), required=False, comment=None),)",
        f"tuple[{COLUMN}[str:'a',{TYPE}[str:'array',int:0,int:0,tuple["
        f"{COLUMN}[str:'element',{TYPE}[str:'decimal',int:12,int:2,tuple[]],bool:False,NoneType:None]"
        "]],bool:False,NoneType:None]]",
    ),
    "m map<string, struct<x: date not null>>": (
        "(Column(name='m', type=SparkType(kind='map', precision=0, scale=0, children=("
        "Column(name='key', type=SparkType(kind='string', precision=0, scale=0, children=()), "
        "required=False, comment=None), "
        "Column(name='value', type=SparkType(kind='struct', precision=0, scale=0, children=("
        "Column(name='x', type=SparkType(kind='date', precision=0, scale=0, children=()), "
        "required=True, comment=None),)), required=False, comment=None))), required=False, comment=None),)",
        f"tuple[{COLUMN}[str:'m',{TYPE}[str:'map',int:0,int:0,tuple["
        f"{COLUMN}[str:'key',{TYPE}[str:'string',int:0,int:0,tuple[]],bool:False,NoneType:None],"
        f"{COLUMN}[str:'value',{TYPE}[str:'struct',int:0,int:0,tuple["
        f"{COLUMN}[str:'x',{TYPE}[str:'date',int:0,int:0,tuple[]],bool:True,NoneType:None]"
        "]],bool:False,NoneType:None]]],bool:False,NoneType:None]]",
    ),
}


@pytest.mark.parametrize(("schema", "expected"), [(text, pins[0]) for text, pins in SCHEMAS.items()], ids=SCHEMAS)
def test_fingerprints_of_sources_hash_this_repr(schema: str, expected: str) -> None:
    assert repr(parse_columns(schema)) == expected


@pytest.mark.parametrize(("schema", "expected"), [(text, pins[1]) for text, pins in SCHEMAS.items()], ids=SCHEMAS)
def test_fingerprints_of_tasks_hash_this_text(schema: str, expected: str) -> None:
    writer = ValueWriter(ProjectFiles(Path("/project")), lambda value: None)
    assert writer.write(parse_columns(schema)) == expected
    assert writer.unknown == []


ORIGINS = {
    "0277346d6f28a269b00d07f85d5bf5ee6ece1fd5c85e4691b559e4ac00cf7db8": Files(
        "data/*.csv", "csv", parse_columns(", ".join(SCHEMAS)), options=(("header", "true"),)
    ),
    "c4f47f1322d2c600e305cb3d0c609d164dbdd6ef8aab1822cdf16d4721255df6": Manual(parse_columns(", ".join(SCHEMAS))),
}


@pytest.mark.parametrize(("stored", "origin"), ORIGINS.items(), ids=["files", "manual"])
def test_sources_of_existing_lakes_keep_their_fingerprint(stored: str, origin: Files | Manual) -> None:
    assert fingerprint_source(Source(TableName("ods", "a"), origin, SourceLocation("a.py", 1))) == stored
