"""Work of another thread is interrupted between imports, never within one."""

import importlib
import sys
import threading
from pathlib import Path

import pytest

from runnel.thread_interrupt import Interrupted, Interruption, allow_interrupts

SLOW_MODULE = """
import builtins
builtins.slow_import_began.set()
while not builtins.slow_import_may_end.is_set():
    pass
IS_COMPLETE = True
"""


def test_an_import_is_not_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_module_to_import.py").write_text(SLOW_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    monkeypatch.setattr("builtins.slow_import_began", began, raising=False)
    monkeypatch.setattr("builtins.slow_import_may_end", may_end, raising=False)
    interruptions: list[Interruption] = []
    steps: list[str] = []

    def work() -> None:
        try:
            with allow_interrupts() as interruption:
                interruptions.append(interruption)
                importlib.import_module("slow_module_to_import")
                steps.append("imported")
                while not ended.is_set():
                    pass
        except Interrupted:
            steps.append("interrupted")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert began.wait(30)
    interruptions[0].interrupt()
    may_end.set()
    while thread.is_alive():
        interruptions[0].interrupt()
        thread.join(0.05)
    ended.set()
    assert steps[-1] == "interrupted"
    assert sys.modules.pop("slow_module_to_import").IS_COMPLETE
