"""Tables of the terminal fit it: what people copy is never cut, and long texts get more lines."""

import pytest

from runnel import text_tables
from runnel.text_tables import format_table


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the terminal have 40 columns."""
    monkeypatch.setattr(text_tables, "terminal_width", lambda: 40)


ROWS = [["20260101t020000-1a2b3c4d", "main", "a long description of what was done"]]
HEADERS = ["run", "branch", "what"]


def test_the_widest_column_is_cut(narrow: None) -> None:
    assert format_table(HEADERS, ROWS).splitlines()[1] == "20260101t02000…  main    a long descrip…"


def test_names_that_people_copy_are_whole(narrow: None) -> None:
    assert format_table(HEADERS, ROWS, uncut=[0], optional=[1]).splitlines() == [
        "run                       what",
        "20260101t020000-1a2b3c4d  a long descri…",
    ]


def test_optional_columns_are_shown_if_there_is_room() -> None:
    assert format_table(HEADERS, ROWS, uncut=[0], optional=[1]).splitlines()[1] == "  ".join(ROWS[0]).replace(
        "main", "main  "
    )


def test_a_wrapped_column_gets_more_lines(narrow: None) -> None:
    assert format_table(HEADERS, ROWS, uncut=[0], optional=[1], wrapped=[2]).splitlines() == [
        "run                       what",
        "20260101t020000-1a2b3c4d  a long description of",
        "                          what was done",
    ]


def test_a_table_without_room_for_its_names_is_wider_than_the_terminal(narrow: None) -> None:
    lines = format_table(["a", "b"], [["x" * 30, "y" * 30]], uncut=[0, 1]).splitlines()
    assert lines[1] == f"{'x' * 30}  {'y' * 30}"
