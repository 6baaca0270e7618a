"""What a terminal obeys or hides is shown as it would be typed; what people write stays."""

import pytest

from runnel.text_tables import format_table
from runnel.visible_text import show_invisible, show_on_one_line

CASES = {
    "clears the screen": ("\x1b[2J", r"\x1b[2J"),
    "writes to the clipboard": ("\x1b]52;c;cm0=\x07", r"\x1b]52;c;cm0=\x07"),
    "eight-bit escape": ("\x9b2J", r"\x9b2J"),
    "deletes": ("ab\x7f\x08", r"ab\x7f\x08"),
    "overwrites the line": ("failed\rpassed", r"failed\rpassed"),
    "override": ("exe.\u202egpj", r"exe.\u202egpj"),
    "isolate": ("\u2066a\u2069", r"\u2066a\u2069"),
    "zero width": ("orders\u200b", r"orders\u200b"),
    "joiner in a Latin name": ("ord\u200ders", r"ord\u200ders"),
    "byte order mark": ("\ufeffid", r"\ufeffid"),
    "byte of a file name that is no text": ("caf\udce9", r"caf\udce9"),
    "tag": ("a\U000e0041", r"a\U000e0041"),
    "lines and tabs": ("a\tb\nc", "a\tb\nc"),
    "Persian": ("می‌خواهم", "می‌خواهم"),
    "family": ("👩‍👩‍👧", "👩‍👩‍👧"),
    "accents and Chinese": ("café 数据 …", "café 数据 …"),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_show_invisible(text: str, expected: str) -> None:
    assert show_invisible(text) == expected


def test_cells_have_one_line() -> None:
    assert show_on_one_line("a\r\n\tb\x1b") == r"a\r\n\tb\x1b"
    assert format_table(["a\x1b"], [["x\ny\u202e"]]) == "a\\x1b\nx\\ny\\u202e"
