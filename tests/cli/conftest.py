"""Run the command line in this process, as a user would: words in, exit code and text out."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runnel.cli.main import main

ORDERS = """\
order_id,seller_id,day,amount
1,10,2026-01-01,20.00
2,11,2026-01-01,35.50
3,10,2026-01-02,12.25
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Return a function that runs `runnel WORDS` in a fresh folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["runnel", *words])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as done:
            code = int(done.code or 0)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Done(code, out, err)

    return run


@pytest.fixture
def shop(cli: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Return `cli` in a project that has one table, ods.orders, with three rows."""
    assert cli("init", "--template", "empty").code == 0
    (tmp_path / "data").mkdir()
    (tmp_path / "data/orders.csv").write_text(ORDERS)
    assert cli("load", "ods.orders", "data/orders.csv", "--key", "order_id").code == 0
    return cli
