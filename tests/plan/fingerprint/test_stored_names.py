"""Fingerprints of an older version stay valid: the texts of our own classes in them never change.

A class that moves or is renamed needs an entry in `_STORED_CLASS_NAMES`, with the name that is pinned here.
"""

from pathlib import Path

import pytest

from runnel.declare.model.column_types import Column, SparkType
from runnel.declare.model.secret import Secret
from runnel.plan.fingerprint.project_files import ProjectFiles
from runnel.plan.fingerprint.stable_values import ValueWriter

AMOUNT = "class:runnel.declare.types.SparkType[str:'decimal',int:12,int:2,tuple[]]"
STORED_TEXTS = {
    "a column type": (SparkType("decimal", 12, 2), AMOUNT),
    "a column": (
        Column("amount", SparkType("decimal", 12, 2), required=True),
        f"class:runnel.declare.types.Column[str:'amount',{AMOUNT},bool:True,NoneType:None]",
    ),
    "a secret": (Secret("PG_PASSWORD"), "class:runnel.declare.secret.Secret[str:'PG_PASSWORD']"),
    "the class of a column": (Column, "class:runnel.declare.types.Column"),
    "the class of a secret": (Secret, "class:runnel.declare.secret.Secret"),
}


@pytest.mark.parametrize(("value", "text"), STORED_TEXTS.values(), ids=STORED_TEXTS)
def test_the_text_of_our_own_values(tmp_path: Path, value: object, text: str) -> None:
    writer = ValueWriter(ProjectFiles(tmp_path), lambda _: None)
    assert (writer.write(value), writer.unknown) == (text, [])
