"""Which files on disk a put takes, and what it refuses."""

import os
import socket
from pathlib import Path

import pytest

from runnel.errors import Mistake
from runnel.lake.files.disk_paths import collect_files
from tests.lake.files.factories import tree

FILES = {"a.txt": "a", "b.bin": "b", ".hidden": "h", "sub/c.txt": "c", "sub/.git/d": "d", "sub/deep/e.txt": "e"}
EVERY = sorted(FILES)
TAKEN = {
    "a folder, with what is hidden": ([""], EVERY),
    "a file": (["sub/c.txt"], ["c.txt"]),
    "two files": (["a.txt", "sub/c.txt"], ["a.txt", "c.txt"]),
    "a glob": (["*.txt"], ["a.txt"]),
    "a glob over folders": (["**/*.txt"], ["a.txt", "sub/c.txt", "sub/deep/e.txt"]),
    "a glob keeps paths below its fixed part": (["sub/*/*.txt"], ["deep/e.txt"]),
    "a glob that matches folders": (["s*"], ["sub/.git/d", "sub/c.txt", "sub/deep/e.txt"]),
    "a glob that matches all twice": (["**/*"], sorted(set(FILES) - {".hidden"})),
    "a glob of all files that are not hidden": (["**"], ["a.txt", "b.bin", "sub/c.txt", "sub/deep/e.txt"]),
}


@pytest.mark.parametrize(("sources", "expected"), TAKEN.values(), ids=TAKEN)
def test_what_sources_name(tmp_path: Path, sources, expected):
    tree(tmp_path, FILES)
    assert [found.path for found in collect_files([tmp_path / source for source in sources])] == expected


def test_a_prefix_goes_in_front(tmp_path: Path):
    assert [found.path for found in collect_files([tree(tmp_path, FILES) / "a.txt"], "x/y/")] == ["x/y/a.txt"]


def test_links_below_the_folder_are_followed(tmp_path: Path):
    tree(tmp_path, {"real/a.txt": "a"})
    (tmp_path / "file").symlink_to("real/a.txt")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    assert [found.path for found in collect_files([tmp_path])] == ["file", "folder/a.txt", "real/a.txt"]


def nothing(folder: Path) -> None:
    folder.mkdir(exist_ok=True)


def link_out(folder: Path) -> None:
    tree(folder.parent, {"secret": "s"})
    (folder / "link").symlink_to("../secret")


def link_to_sibling_with_same_beginning(folder: Path) -> None:
    tree(folder.parent, {folder.name + "2/secret": "s"})
    (folder / "link").symlink_to(f"../{folder.name}2")


def link_to_itself(folder: Path) -> None:
    (folder / "link").symlink_to("link")


def link_to_parent(folder: Path) -> None:
    tree(folder, {"sub/a": "a"})
    (folder / "sub/up").symlink_to("..")


def link_to_nothing(folder: Path) -> None:
    (folder / "link").symlink_to("gone")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def listening(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s")
    finally:
        os.chdir(here)


def bad_name(folder: Path) -> None:
    tree(folder, {"a\nb": "x", "c\\d": "y"})


def bytes_name(folder: Path) -> None:
    (folder / os.fsdecode(b"\xff.txt")).write_text("x")


REFUSED = {
    "empty folder": (nothing, [""], "FILES_NONE", "no files in"),
    "no such file": (lambda folder: tree(folder, {"readme.md": ""}), ["raedme.md"], "FILES_NOT_FOUND", r"readme\.md"),
    "no match": (nothing, ["*.txt"], "FILES_NO_MATCH", r"no file matches"),
    "no folder to match in": (nothing, ["gone/*.txt"], "FILES_NO_MATCH", r"no file matches"),
    "NUL": (nothing, ["a\0b"], "FILES_NOT_FOUND", "no file"),
    "link out of the folder": (link_out, [""], "FILES_SYMLINK", "points outside"),
    "link out, in a glob": (link_out, ["*"], "FILES_SYMLINK", "points outside"),
    "link to a folder of like name": (link_to_sibling_with_same_beginning, [""], "FILES_SYMLINK", "points outside"),
    "link to itself": (link_to_itself, [""], "FILES_SYMLINK_LOOP", "is part of a loop"),
    "link to a folder above": (link_to_parent, [""], "FILES_SYMLINK_LOOP", "points to a folder that contains it"),
    "link to nothing": (link_to_nothing, [""], "FILES_SYMLINK", "points to a file that does not exist"),
    "named pipe": (pipe, [""], "FILES_NOT_REGULAR", "named pipe"),
    "socket": (listening, [""], "FILES_NOT_REGULAR", "socket"),
    "device": (nothing, ["/dev/null"], "FILES_NOT_REGULAR", "device"),
    "control character and backslash": (bad_name, [""], "FILES_PATH", r"control character; .*has a \\"),
    "not UTF-8": (bytes_name, [""], "FILES_PATH", "not UTF-8"),
    "two of one path": (lambda f: tree(f, {"x/a": "1", "y/a": "2"}), ["x", "y"], "FILES_SAME_PATH", "x/a and .*y/a"),
}


@pytest.mark.parametrize(("make", "sources", "code", "what"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(tmp_path: Path, make, sources, code, what):
    folder = tmp_path / "given"
    folder.mkdir()
    make(folder)
    with pytest.raises(Mistake, match=what) as refused:
        collect_files([folder / source for source in sources])
    assert refused.value.code == code and refused.value.fix


def test_a_folder_with_the_lake_inside_is_refused(tmp_path: Path):
    tree(tmp_path, {"a": "a", ".runnel/warehouse/x": "x"})
    with pytest.raises(Mistake, match="holds the lake's own files"):
        collect_files([tmp_path], lake=tmp_path / ".runnel/warehouse")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read(tmp_path: Path):
    tree(tmp_path, {"closed/a": "a"})
    (tmp_path / "closed").chmod(0)
    with pytest.raises(Mistake, match="can't be read: Permission denied"):
        collect_files([tmp_path])
    (tmp_path / "closed").chmod(0o700)
