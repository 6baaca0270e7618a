"""`make test-faults`: hundreds of kills at random moments, with a seed that is printed and can be given again."""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults import workload
from tests.faults.process_helpers import start
from tests.faults.verify import verify, watch

RESULTS = Path(__file__).parent / "RESULTS.md"
KILLS = 500


def kill_randomly(
    catalog: str, folder: Path, *, kills: int, seed: int, told: Callable[[str], None] = lambda _: None
) -> None:
    """Kill one of two writers at a random moment, check the lake, and go on with the same lake."""
    chance = random.Random(seed)
    place = workload.Place(catalog, folder)
    workload.prepare(place)
    failures = folder / "torn"
    reader = start(watch, place, str(failures))
    steady = start(workload.forever, place, chance.getrandbits(32))
    try:
        for number in range(1, kills + 1):
            victim = start(workload.forever, place, chance.getrandbits(32))
            time.sleep(chance.uniform(0.05, 1.2))  # the moment of the kill is what is being tested
            victim.kill()
            victim.join()
            if number % 5 == 0 or number == kills:
                verify(place)
                told(f"{number} of {kills} kills: sound, {len(place.acknowledged())} commits acknowledged")
            assert reader.is_alive() and steady.is_alive(), "a process that nobody killed has ended"
            assert not failures.exists(), failures.read_text()
    finally:
        for process in (reader, steady):
            process.kill()
            process.join()
    verify(place)


def main() -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    only, kills = os.environ.get("ONLY", ""), int(os.environ.get("KILLS") or KILLS)
    say(f"seed {seed}: repeat with SEED={seed}")
    parts: dict[str, Callable[[int, int], str]] = {
        "sqlite": lambda seed, share: _kills(lambda folder: f"sqlite:///{folder}/catalog.db", seed, share),
        "postgresql": lambda seed, share: _kills(_postgresql, seed, share),
        "model": lambda seed, share: _model(share // 2),
        "law": lambda seed, share: _law(seed, share * 4 // 5),
        "sources": lambda seed, share: _sources(seed, share * 4 // 5),
        "slices": lambda seed, share: _slices(seed, share * 2),
        "connect": lambda seed, share: _connect(),
        "stream": lambda seed, share: _streams(seed, share // 5),
        "soak": lambda seed, share: _soak(int(os.environ.get("RUNS") or 4 * share)),
        "service": lambda seed, share: _service(seed, share * 2 // 5),
    }
    chosen = {name: part for name, part in parts.items() if only in name}
    for name, part in chosen.items():
        started = time.monotonic()
        done = f"{name}: {part(seed, kills // 2)}, in {time.monotonic() - started:.0f} s (seed {seed})"
        say(done)
        if kills == KILLS and not os.environ.get("RUNS"):
            _keep(name, done, list(parts))


def _keep(name: str, done: str, order: list[str]) -> None:
    """Keep what a part said last in the results, beside what the others said."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    known = {line.removeprefix("- ").partition(":")[0]: line for line in lines if line.startswith("- ")}
    known[name] = f"- {done}"
    kept = "\n".join(known[one] for one in order if one in known)
    RESULTS.write_text(f"# What each part of `make test-faults` last said\n\n{kept}\n")


def _kills(make: Callable[[Path], str], seed: int, share: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "crew.log"
        os.environ["RUNNEL_CREW_LOG"] = str(log)
        try:
            kill_randomly(make(Path(folder)), Path(folder) / "lake", kills=share, seed=seed, told=say)
        except AssertionError as error:
            say(f"FAILED with seed {seed}: {error}")
            say(log.read_text() if log.exists() else "no process left a trace")
            sys.exit(1)
    return f"{share} kills at random moments, each lake sound afterwards"


def _model(examples: int) -> str:
    """Run the state machine with many random histories."""
    import pytest

    os.environ["RUNNEL_MODEL_EXAMPLES"] = str(examples)
    if pytest.main(["-q", "--timeout=3600", str(RESULTS.parent.parent / "lake" / "test_state_machine.py")]):
        sys.exit(1)
    return f"{examples} random histories equal the model"


def _connect() -> str:
    """Let every kind of source and of sink be killed at every failpoint on its way; `make test` has them take turns."""
    tests = RESULTS.parent.parent
    lives = [
        *sorted((tests / "connect" / "lifecycle").glob("test_*.py")),
        tests / "connect" / "sinks" / "test_lifecycle.py",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--timeout=3600"]
    done = subprocess.run(
        [*command, *map(str, lives)], env=os.environ | {"RUNNEL_EVERY_KILL": "1"}, capture_output=True, text=True
    )
    if done.returncode:
        say(done.stdout + done.stderr)
        sys.exit(1)
    passed = done.stdout.splitlines()[-1].partition(" in ")[0]
    return f"each kind of source and sink killed at every failpoint on its way, nothing lost, nothing twice ({passed})"


def _sources(seed: int, histories: int) -> str:
    """Play random histories of sources, their tables and quarantines held against a model after each step.

    As many processes as there are cores share them: each history has a seed of its own.
    """
    tests = str(RESULTS.parent.parent / "connect" / "source_histories" / "test_source_histories.py")
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "--timeout=7200", "-k", "equal_the_model", tests]
    started, first = [], seed
    for share in filter(None, _shares(histories, os.cpu_count() or 1)):
        chosen = {"RUNNEL_SOURCE_HISTORIES": str(share), "RUNNEL_SOURCE_SEED": str(first)}
        started.append(subprocess.Popen(command, env=os.environ | chosen))
        first += share
    ended = [process.wait() for process in started]
    if any(ended):
        sys.exit(1)
    return f"{histories} random histories of file sources: table and quarantine equal the model after each step"


def _law(seed: int, histories: int) -> str:
    """Run random histories of random projects, each table held against a full computation after each step.

    As many processes as there are cores share them: a history waits for Spark's driver most of the time.
    """
    law = str(RESULTS.parent.parent / "run" / "equivalence" / "test_equivalence.py")
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "--timeout=7200", "-k", "equals_the_whole", law]
    shares = [share for share in _shares(histories, os.cpu_count() or 1) if share]
    started = [
        subprocess.Popen(
            [*command, f"--hypothesis-seed={seed + at}"], env=os.environ | {"RUNNEL_LAW_HISTORIES": str(share)}
        )
        for at, share in enumerate(shares)
    ]
    ended = [process.wait() for process in started]
    if any(ended):
        sys.exit(1)
    return f"{histories} random histories: what is computed from changes equals the whole"


def _slices(seed: int, cases: int) -> str:
    """Try random tasks with `by=`: refused, computed in full, or right slice by slice; never wrong."""
    law = str(RESULTS.parent.parent / "run" / "analysis" / "test_random_alignment.py")
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "--timeout=86400", law]
    numbers = {"RUNNEL_ALIGNMENT_CASES": str(cases), "RUNNEL_ALIGNMENT_SEED": str(seed)}
    if subprocess.run(command, env=os.environ | numbers).returncode:
        sys.exit(1)
    return f"{cases} random tasks with by= are refused, computed in full, or right"


def _streams(seed: int, faults: int) -> str:
    """Break everything that streams need while events come."""
    from tests.faults.stream_faults import break_everything

    try:
        return break_everything(seed, faults, say)
    except AssertionError as error:
        say(f"FAILED with seed {seed}: {error}")
        sys.exit(1)


def _service(seed: int, rounds: int) -> str:
    """Break a service that is busy, on both databases, each in a process of its own: half of the rounds each."""
    for catalog, share in zip(("sqlite", "postgresql"), _shares(rounds, 2), strict=True):
        words = ["--catalog", catalog, "--rounds", str(share), "--seed", str(seed)]
        if subprocess.run([sys.executable, "-m", "tests.faults.service.experiment", *words]).returncode:
            say(f"FAILED with {' '.join(words)}")
            sys.exit(1)
    return f"{rounds} random faults: each time published once, each request carried out, each row there once"


def _soak(runs: int) -> str:
    """Do many small runs, and see that nothing grows."""
    from tests.faults.service.soak import soak

    try:
        return soak(runs, os.environ.get("CATALOG") or "postgresql", say)
    except AssertionError as error:
        say(f"FAILED: {error}")
        sys.exit(1)


def _shares(number: int, parts: int) -> list[int]:
    return [number // parts + (at < number % parts) for at in range(parts)]


_servers: list[object] = []


def _postgresql(_: Path) -> str:
    from tests.servers.postgres import Server

    server = Server()
    server.__enter__()
    _servers.append(server)
    import atexit

    atexit.register(server.stop)
    return server.url


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
