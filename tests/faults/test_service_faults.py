"""Five random faults of a service that is busy with schedules, requests and files, and answers all the while."""

import subprocess
import sys

import pytest

ROUNDS = {"sqlite": (3, 214), "postgresql": (2, 8)}


@pytest.mark.crash
@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_random_faults(catalog: str) -> None:
    rounds, seed = ROUNDS[catalog]
    words = ["--catalog", catalog, "--rounds", str(rounds), "--seed", str(seed), "--light"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.service.experiment", *words], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, f"with {' '.join(words)}:\n{done.stdout[-20_000:]}\n{done.stderr[-5000:]}"
    assert "sound" in done.stdout
