"""Kills at random moments while two processes write and one reads."""

from pathlib import Path

import pytest

from tests.faults.run_faults import kill_randomly

KILLS = 10


@pytest.mark.crash
def test_ten_random_kills(catalog: str, tmp_path: Path) -> None:
    kill_randomly(catalog, tmp_path / "lake", kills=KILLS // 2, seed=20261115)
