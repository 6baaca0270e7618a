"""A chain of 40 tasks where nothing changed, against 40 tasks that do nothing in Prefect and in Dagster, in process.

Each is started once and then asked again and again, warm, in a process of its own. Beside it what a task costs that
writes one row: Runnel computes each table of the chain and publishes all of them in one commit.
"""

import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.figure import Figure
from bench.peers import ROOT

TASKS = 40
REPEATS = 15
VENV = ROOT / ".venv-orchestrators"
REQUIREMENTS = ROOT / "requirements" / "orchestrators.txt"
CLOCK = f"""
import json, statistics, time

def clock(ask):
    ask()
    found = []
    for _ in range({REPEATS}):
        started = time.perf_counter()
        ask()
        found.append(time.perf_counter() - started)
    print("took", json.dumps(found))
"""
RUNNEL = """
import sys
import runnel as rn

lake = rn.open(sys.argv[1])
lake.run()

def ask():
    assert lake.run().state == "nothing"

clock(ask)
written = []
for number in range(5):
    with open(f"{sys.argv[1]}/data/{number}.csv", "w") as file:
        file.write(f"id\\n{number}\\n")
    started = time.perf_counter()
    ran = lake.run()
    written.append(time.perf_counter() - started)
    assert ran.state == "succeeded" and len([step for step in ran.steps if step.rows]) == TASKS + 1, ran
print("wrote", json.dumps(written[1:]))
"""
PREFECT = """
import logging
from prefect import flow, task

@task
def link(before):
    return before

@flow
def chain():
    found = 0
    for _ in range(TASKS):
        found = link(found)
    return found

logging.disable(logging.CRITICAL)
clock(chain)
"""
DAGSTER = """
import logging
from dagster import DagsterInstance, In, Nothing, job, op

logging.disable(logging.CRITICAL)

def link(number):
    @op(name=f"link_{number}", ins={"before": In(Nothing)} if number else {})
    def made():
        pass
    return made

links = [link(number) for number in range(TASKS)]

@job
def chain():
    before = None
    for one in links:
        before = one() if before is None else one(before)

instance = DagsterInstance.ephemeral()

def ask():
    assert chain.execute_in_process(instance=instance).success

clock(ask)
"""


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _project(root / "chain")
        ours = _told(sys.executable, RUNNEL, root, root / "chain")
        python = orchestrators()
        theirs = {who: _told(python, text, root) for who, text in (("Prefect", PREFECT), ("Dagster", DAGSTER))}
    skip, write = (statistics.median(ours[word]) / TASKS * 1000 for word in ("took", "wrote"))
    other = {who: statistics.median(told["took"]) / TASKS * 1000 for who, told in theirs.items()}
    details: dict[str, object] = {"runnel": ours["took"]} | {who: told["took"] for who, told in theirs.items()}
    shown, ratio = f"chain of {TASKS}", min(other.values()) / skip
    return [
        Figure(f"{shown}, nothing changed: the better peer / runnel", ratio, "", ">= 5", details),
        Figure(f"{shown}, nothing changed: runnel, per task", skip, "ms"),
        *(Figure(f"{shown} tasks that do nothing: {who}, per task", took, "ms") for who, took in other.items()),
        Figure(f"{shown}, each writes one more row: runnel, per task", write, "ms"),
    ]


def orchestrators() -> Path:
    """Return a Python that has the peers, installing them where they are missing."""
    python, ready = VENV / "bin" / "python", VENV / ".ready"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if not ready.exists() or ready.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
        ready.write_text(wanted)
    return python


def _project(root: Path) -> None:
    for folder in ("flows", "data"):
        (root / folder).mkdir(parents=True)
    (root / "runnel.toml").write_text('[project]\nname = "chain"\n')
    (root / "data" / "first.csv").write_text("id\n100\n")
    head = 'import runnel as rn\n\nrn.source("ods.t00", rn.files("data/*.csv", schema="id long"))\n'
    tasks = (
        f'\n\n@rn.task("dwd.t{number:02}", rowwise=True)\ndef t{number:02}(t{number - 1:02}):\n'
        f"    return t{number - 1:02}\n"
        for number in range(1, TASKS + 1)
    )
    (root / "flows" / "flow.py").write_text(head + "".join(tasks))


def _told(python: str | Path, text: str, folder: Path, *words: Path) -> dict[str, list[float]]:
    """Run a program and return the times that it tells."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PREFECT_HOME": str(folder / "prefect"), "DAGSTER_HOME": ""}
    if python == sys.executable:
        env["HOME"] = str(Path.home())
    program = f"TASKS = {TASKS}\n{CLOCK}\n{text}"
    done = subprocess.run(
        [python, "-c", program, *map(str, words)], env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{python} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    lines = (line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("took ", "wrote ")))
    return {word: json.loads(found) for word, found in lines}
