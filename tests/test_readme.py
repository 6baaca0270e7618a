"""What the README claims, a test runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.cli.main import main

README = (Path(__file__).parent.parent / "README.md").read_text()
RUNNEL = Path(sys.executable).parent / "runnel"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    subprocess.run([RUNNEL, "init", "shop"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_the_python_example_prints_what_it_says(shop: Path) -> None:
    code, output = re.search(r"```python\n(.+?)```\n\n```\n(.+?)```", README, re.DOTALL).groups()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run([sys.executable, "-c", code], cwd=shop, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (output, "")


def test_the_commands_work(shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(shop / "shop")
    block = re.search(r"made by `runnel init shop`:\n\n((?:    .+\n)+)", README).group(1)
    for line in [*block.splitlines(), 'runnel query "select count(*) from ods.orders" --format csv']:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        main()
    assert capsys.readouterr().out.split() == ["count(1)", "3"], "the last command took the merge back"
