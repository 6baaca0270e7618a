"""What scripts rely on: fields, codes and values of every command's JSON on the shop project stay as they were.

If a change is meant, write them again: `python -m tests.cli.json_contract tests/cli/json_contract.json`.
"""

import json
import subprocess
import sys
from pathlib import Path

EXPECTED = Path(__file__).parent / "json_contract.json"


def test_the_json_of_every_command(tmp_path: Path) -> None:
    target = tmp_path / "answers.json"
    command = [sys.executable, "-m", "tests.cli.json_contract", str(target)]
    subprocess.run(command, check=True, timeout=240, cwd=Path(__file__).parents[2])
    answers, expected = (json.loads(path.read_text()) for path in (target, EXPECTED))
    assert [answer["command"] for answer in answers] == [answer["command"] for answer in expected]
    for answer, before in zip(answers, expected, strict=True):
        assert answer == before
