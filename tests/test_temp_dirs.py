"""Temporary folders go with their process, however it ends."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runnel import temp_dirs
from runnel.errors import RunnelError

Running = Callable[[str], "subprocess.Popen[str]"]
HOLD = 'made = temp_dirs.create("feed"); print(made, flush=True); input()'


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the system's folder for temporary files be an empty one, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(temp_dirs, "_own", None)
    return tmp_path


@pytest.fixture
def running(system: Path) -> Running:
    """Return a function that starts a process which does something with temporary folders."""

    def start(code: str) -> "subprocess.Popen[str]":
        words = [sys.executable, "-c", f"from runnel import temp_dirs; {code}"]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return start


def said(process: "subprocess.Popen[str]") -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def left(system: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in system.glob("runnel-*/*-*"))


def test_a_folder_goes_with_its_block(system: Path) -> None:
    with temp_dirs.create_scoped("load") as name:
        assert Path(name).is_dir() and system in Path(name).parents
    assert not Path(name).exists()


def test_nothing_is_left_by_a_process_that_ends(running: Running, system: Path) -> None:
    with running(HOLD) as process:
        assert said(process).is_dir() and left(system) == ["process"]
        process.communicate("\n")
    assert left(system) == []


def test_what_a_killed_process_left_goes_with_the_next_one(running: Running, system: Path) -> None:
    with running(HOLD) as killed, running(HOLD) as alive:
        lost, held = said(killed), said(alive)
        (lost / "rows").write_text("many")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert lost.is_dir()
        with temp_dirs.create_scoped("load"):
            assert not lost.exists() and held.is_dir()
        alive.communicate("\n")


def test_a_forked_child_has_a_folder_of_its_own(running: Running, system: Path) -> None:
    code = 'import os; a = temp_dirs.create("a"); os.fork() or os._exit(0 if temp_dirs.create("b").split("/")[-2] != '
    code += 'a.split("/")[-2] else 1); code = os.wait()[1]; print(code, os.path.isdir(a))'
    with running(code) as process:
        assert process.communicate()[0].split() == ["0", "True"]


def test_a_folder_that_the_system_cleared_is_made_again(system: Path) -> None:
    first = Path(temp_dirs.create("feed"))
    shutil.rmtree(system / f"runnel-{os.getuid()}")
    again = Path(temp_dirs.create("feed"))
    assert again.is_dir() and again.parent != first.parent


def test_a_folder_of_someone_else_is_not_used(system: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (system / f"runnel-{os.getuid()}").symlink_to(tmp_path_factory.mktemp("other"))
    with pytest.raises(RunnelError) as raised:
        temp_dirs.create("feed")
    assert raised.value.code == "TEMPORARY_FOLDER" and "TMPDIR" in str(raised.value.fix)
