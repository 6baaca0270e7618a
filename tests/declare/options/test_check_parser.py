"""Checks become conditions of Spark SQL in which nothing the user wrote can end the text early."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

import runnel as rn
from runnel.declare.options.check_parser import parse_check
from runnel.errors import Mistake

CONDITIONS = {
    "not null": (rn.not_null("a", "b"), "not_null(a, b)", "`a` is not null and `b` is not null"),
    "odd names": (
        rn.not_null("a b", "x.y", "`p.q`"),
        "not_null(a b, x.y, `p.q`)",
        "`a b` is not null and `x`.`y` is not null and `p.q` is not null",
    ),
    "quote in a name": (rn.not_null("a`b"), "not_null(a`b)", "`a``b` is not null"),
    "accepted": (rn.accepted("s", ["a'b", "c\\d", "${x}"]), None, r"`s` in ('a\'b', 'c\\d', '$\u007bx}')"),
    "kinds": (
        rn.accepted("s", [1, True, 1.5, Decimal("1E+2"), date(2026, 1, 2), datetime(2026, 1, 2, 8, tzinfo=UTC)]),
        None,
        "`s` in (1, true, 1.5D, 100BD, date '2026-01-02', timestamp '2026-01-02 08:00:00+00:00')",
    ),
    "between": (rn.between("x", 0, 5), "between(x, 0, 5)", "`x` >= 0 and `x` <= 5"),
    "open end": (rn.between("x", high=5), "between(x, None, 5)", "`x` <= 5"),
    "matches": (rn.matches("x", r"^\d+$"), r"matches(x, '^\\d+$')", r"`x` rlike '^\\d+$'"),
    "condition": (rn.check(" a = 'it''s' and b > 0 "), "a = 'it''s' and b > 0", "a = 'it''s' and b > 0"),
}


@pytest.mark.parametrize(("check", "text", "condition"), CONDITIONS.values(), ids=CONDITIONS)
def test_row_checks(check: "rn.check", text: str | None, condition: str) -> None:
    assert check.condition == condition and check.is_row_check
    assert text is None or check.text == text


TEXTS = {
    "not_null(order_id)": rn.not_null("order_id"),
    "unique(order_id, day)": rn.unique("order_id", "day"),
    "accepted(status, ['a','b'])": rn.accepted("status", ["a", "b"]),
    "between(x, 0, 5, on_fail='drop')": rn.between("x", 0, 5, on_fail="drop"),
    "row_count(min=1)": rn.row_count(min=1),
    "fresh(ts, within='1 day')": rn.fresh("ts", within="1 day"),
    "references(x, ods.s.id, on_fail='warn')": rn.references("x", "ods.s.id", on_fail="warn"),
    "matches(x, '^a')": rn.matches("x", "^a"),
    "revenue >= 0": rn.check("revenue >= 0"),
    "isnotnull(x)": rn.check("isnotnull(x)"),
    "check('a > 0', on_fail='quarantine')": rn.check("a > 0", on_fail="quarantine"),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.items(), ids=TEXTS)
def test_checks_as_text(text: str, expected: object) -> None:
    assert parse_check(text) == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("not_nul(x)", "close: `not_null`"),
        ("not_null()", "names no column"),
        ("accepted(x, 'ab')", "not a list of values"),
        ("between(x, f(1), 2)", "neither a column nor a value"),
        ("row_count()", "no bounds"),
        ("fresh(ts, within='soon')", "not a duration"),
        ("unique(x, on_fail='quarantine')", "no rows to put into quarantine"),
        ("a > 0)", "does not belong there"),
        ("a = 'x", "does not belong there"),
        ("", "not a condition"),
        ("between(x, nan=1)", "unexpected keyword"),
    ],
)
def test_wrong_checks(text: str, what: str) -> None:
    with pytest.raises(Mistake, match="DECLARE_CHECK") as caught:
        parse_check(text)
    assert what in str(caught.value)
