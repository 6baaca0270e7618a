"""The commands for files, with words for people and JSON for scripts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def docs(shop: Run, tmp_path: Path) -> Run:
    """Return the command line in a project whose table raw.docs has three files of 3 bytes each."""
    for name in ("a/1.txt", "a/2.txt", "b.txt"):
        file = tmp_path / "in" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("abc")
    assert shop("put", "raw.docs", "in").code == 0
    return shop


def _paths(docs: Run, *words: str) -> list[str]:
    return [file["path"] for file in docs("ls", "raw.docs", *words, "--json").json]


def test_files_are_removed_in_one_commit(docs: Run) -> None:
    done = docs("rm", "raw.docs", "a/*")
    assert done.code == 0 and done.out.startswith("removed from raw.docs: 2 files (6 B), commit ")
    assert _paths(docs) == ["b.txt"] and len(_paths(docs, "--at", "main~1")) == 3
    assert docs("log", "--json").json[0]["message"] == "remove 2 files from raw.docs"


def test_removing_on_a_branch_leaves_main_alone(docs: Run) -> None:
    docs("branch", "dev")
    removal = docs("rm", "raw.docs", "**", "--branch", "dev", "-m", "start over", "--json").json
    commit = docs("show", "dev", "--json").json
    assert (commit["commit"], commit["message"]) == (removal["commit"], "start over")
    assert (removal["removed"], removal["bytes"], removal["dry_run"]) == (3, 9, False)
    assert _paths(docs, "--at", "dev") == [] and len(_paths(docs)) == 3


def test_a_dry_run_removes_nothing(docs: Run) -> None:
    assert docs("rm", "raw.docs", "a", "--dry-run").out == (
        "a/1.txt\na/2.txt\n2 files (6 B) would be removed from raw.docs\n"
    )
    answer = docs("rm", "raw.docs", "a", "--dry-run", "--json").json
    assert (answer["commit"], answer["paths"], answer["dry_run"]) == (None, ["a/1.txt", "a/2.txt"], True)
    assert len(_paths(docs)) == 3


MISTAKES = {
    "no match": (("raw.docs", "a/3.txt"), "close: `a/2.txt`", "FILES_NO_MATCH"),
    "no glob": (("raw.docs",), "Missing argument", "USAGE"),
    "an unknown table": (("raw.doc", "*"), "close: `raw.docs`", "TABLE_UNKNOWN"),
    "a table of rows": (("ods.orders", "*"), "holds rows, not files", "FILES_NOT_A_FILE_TABLE"),
    "an unknown branch": (("raw.docs", "*", "--branch", "mian"), "mian", "BRANCH_UNKNOWN"),
}


@pytest.mark.parametrize(("words", "text", "code"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(docs: Run, words: tuple[str, ...], text: str, code: str) -> None:
    done = docs("rm", *words)
    assert (done.code, done.out) == (2, "") and text in done.err
    assert docs("rm", *words, "--json").json["error"]["code"] == code
    assert len(_paths(docs)) == 3
