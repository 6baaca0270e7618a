"""The one rule of paths, and globs over them."""

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.errors import Mistake
from runnel.lake.files.paths import Glob, check_path, find_path_problem

GOOD = ["a", "a/b.txt", ".hidden", "with space/ü.txt", "日本/猫.png", "...", "a..b", "x" * 1024, "it's [odd]*?.txt"]
BAD = {
    "": "empty name",
    "/etc/passwd": "absolute",
    "../up": r"`\.\.`",
    "a/../b": r"`\.\.`",
    "a/./b": r"`\.`",
    "a//b": "empty name",
    "a/": "empty name",
    "a\\b": r"\\",
    "a\0b": "control",
    "a\nb": "control",
    "a\x7fb": "control",
    "ü\x85": "control",
    "a\u2028b": "control",
    "a\udcffb": "not UTF-8",
    "u\u0308": "NFC",
    "x" * 1025: "too long",
    "ü" * 513: "too long",
}


@pytest.mark.parametrize("path", GOOD)
def test_a_good_path_is_taken(path):
    assert find_path_problem(path) is None


@pytest.mark.parametrize(("path", "why"), BAD.items(), ids=ascii)
def test_a_bad_path_is_refused_with_its_reason(path, why):
    with pytest.raises(Mistake, match=why) as refused:
        check_path(path)
    assert refused.value.code == "FILES_PATH" and "NFC" in (refused.value.fix or "")


ALL = ["a.png", "b.txt", "img/a.png", "img/b.png", "img/x/a.png", "img/x/y/c.png", "img2/a.png", "[odd]", "a.pngx"]
GLOBS = {
    "*": ["a.png", "b.txt", "[odd]", "a.pngx"],
    "*.png": ["a.png"],
    "**": ALL,
    "**/*.png": ["a.png", "img/a.png", "img/b.png", "img/x/a.png", "img/x/y/c.png", "img2/a.png"],
    "img/*": ["img/a.png", "img/b.png"],
    "img/**": ["img/a.png", "img/b.png", "img/x/a.png", "img/x/y/c.png"],
    "img/": ["img/a.png", "img/b.png", "img/x/a.png", "img/x/y/c.png"],
    "img": ["img/a.png", "img/b.png", "img/x/a.png", "img/x/y/c.png"],
    "img/**/a.png": ["img/a.png", "img/x/a.png"],
    "img/a.png": ["img/a.png"],
    "img?/*": ["img2/a.png"],
    "img/[!a].png": ["img/b.png"],
    "img/[a-b].png": ["img/a.png", "img/b.png"],
    "img[.-0]a.png": [],
    "[[]odd]": ["[odd]"],
    "[o": [],
    "a?png": ["a.png"],
    "nothing": [],
}


@pytest.mark.parametrize(("glob", "expected"), GLOBS.items(), ids=list(GLOBS))
def test_a_glob_matches(glob, expected):
    found = Glob(glob).matches(pa.chunked_array([ALL])).to_pylist()
    assert [path for path, matched in zip(ALL, found, strict=True) if matched] == expected


def test_a_range_that_goes_backwards_is_no_glob():
    with pytest.raises(Mistake, match="is not a glob"):
        Glob("[z-a]").matches(pa.chunked_array([ALL]))


@given(st.text("ab/*?[]!-.", max_size=12), st.lists(st.text("ab/.-]", min_size=1, max_size=8), min_size=1, max_size=8))
def test_pruning_by_the_beginning_never_hides_a_match(text, known):
    glob, ordered = Glob(text), sorted(known)
    try:
        matched = glob.matches(pa.chunked_array([ordered])).to_pylist()
    except Mistake:
        return
    assert not any(matched) or glob.may_match_between(ordered[0], ordered[-1])
    assert matched == [bool(re.search(glob.pattern.replace(r"\x{", "\\x").replace("}", ""), path)) for path in ordered]
