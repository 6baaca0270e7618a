"""One rule for names: what breaks it is refused, whatever it hides."""

import pytest

from runnel.errors import Mistake, RunnelError
from runnel.names import TableName, validate_branch_name, validate_tag_name

BAD = {
    "empty": "",
    "quote": "ods.or'ders",
    "double quote": 'ods."orders"',
    "backtick": "ods.`orders`",
    "space": "ods.or ders",
    "leading space": " ods.orders",
    "newline": "ods.orders\n",
    "parent folder": "..",
    "path": "ods/../../etc.passwd",
    "dots": "ods..orders",
    "NUL": "ods.ord\0ers",
    "cyrillic look-alike": "ods.оrders",  # the first letter is U+043E
    "full-width digit": "ods.orders１",
    "upper case": "ods.Orders",
    "starts with a digit": "ods.1orders",
    "300 characters": "ods." + "a" * 300,
    "semicolon": "ods.orders; drop table x",
    "dash": "ods.my-orders",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_table_names_that_are_refused(text: str) -> None:
    with pytest.raises(Mistake) as caught:
        TableName.parse(text)
    assert caught.value.code == "NAME_TABLE" and caught.value.fix
    assert "\n" not in caught.value.what and len(caught.value.what) < 120


@pytest.mark.parametrize(
    "text", [*BAD.values(), "-x", "a/b", "a@b", "a~1"], ids=[*BAD, "dash first", "slash", "at", "tilde"]
)
def test_branch_and_tag_names_that_are_refused(text: str) -> None:
    if text not in ("ods.my-orders", "ods.1orders"):  # a tag may have dots, dashes and digits, as in v1.0-rc1
        with pytest.raises(Mistake):
            validate_tag_name(text)
    with pytest.raises(Mistake):
        validate_branch_name(text)


@pytest.mark.parametrize("text", ["spark_catalog", "system", "run_w1_0", "run_"])
def test_reserved_branch_names(text: str) -> None:
    with pytest.raises(Mistake, match="reserved"):
        validate_branch_name(text)


def test_good_names() -> None:
    assert str(TableName.parse("dws.seller_day")) == "dws.seller_day"
    assert validate_branch_name("feature-2_b") and validate_tag_name("v1.0")


def test_an_error_says_what_where_and_how() -> None:
    error = RunnelError("PLAN_UNKNOWN_INPUT", "task `a` reads `b`", at="flows/x.py:12", fix="rename it")
    assert str(error) == "PLAN_UNKNOWN_INPUT: task `a` reads `b`\n  at flows/x.py:12\n  fix: rename it"
    assert error.to_json()["at"] == "flows/x.py:12"
