"""What the README claims, a test runs."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.cli.main import main

README = (Path(__file__).parent.parent / "README.md").read_text()
RUNNEL = Path(sys.executable).parent / "runnel"
# What differs from run to run: times, commits, and the spaces that keep columns apart.
VARYING = ((r"\d+\.\d s", "0.0 s"), (r"commit [0-9a-f]{8}", "commit 0"), (r" +", " "))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    subprocess.run([RUNNEL, "init", "shop"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "shop"


def steady(text: str) -> str:
    for pattern, instead in VARYING:
        text = re.sub(pattern, instead, text)
    return text


def test_the_flow_does_what_it_says(shop: Path) -> None:
    flow = re.search(r"```python\n(.+?)```", README, re.DOTALL).group(1)
    assert len([line for line in flow.splitlines() if line.strip()]) <= 10
    shutil.rmtree(shop / "flows")
    (shop / "flows").mkdir()
    (shop / "flows/orders.py").write_text(flow)
    session = re.search(r"```\n(\$ runnel run\n.+?)```", README, re.DOTALL).group(1)
    for part in session.split("$ ")[1:]:
        line, _, output = part.partition("\n")
        words = [str(RUNNEL) if word == "runnel" else word for word in shlex.split(line)]
        done = subprocess.run(words, cwd=shop, capture_output=True, text=True, check=False)
        assert (done.returncode, steady(done.stdout)) == (0, steady(output)), done.stderr


def test_the_commands_work(shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(shop)
    block = re.search(r"versioned as a whole:\n\n((?:    .+\n)+)", README).group(1)
    for line in [*block.splitlines(), "runnel tables"]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        main()
    assert capsys.readouterr().out.startswith("no tables yet"), "the last command took the merge back"
