"""`runnel plan` and `runnel run` as a user types them, in processes of their own: exit codes, JSON, Ctrl-C, kill -9."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.run.project import Project, did
from tests.spark.program_runner import gone, interruptible

RUNNEL = Path(sys.executable).parent / "runnel"
FLOW = """
@rn.task("dws.day", rowwise=False)
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
"""
SLOW = """
import pathlib, time

def slowly(x):
    pathlib.Path("ROOT/started").touch()
    time.sleep(60)
    return x

@rn.task("dws.slow", inputs={"day": "dws.day"})
def slow(day):
    return day.select(F.udf(slowly, "long")("revenue").alias("revenue"))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.flow(FLOW)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7))
    return project


def runnel(project: Project, *words: str, **env: str) -> tuple[int, Any, str]:
    line = [str(RUNNEL), "-C", str(project.root), *words, "--json"]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **env}, timeout=240, check=False)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_a_kill_at_publish_then_the_same_run_resumes(shop: Project) -> None:
    code, _, _ = runnel(shop, "run", RUNNEL_FAIL="publish.before_commit:kill")
    assert code == -signal.SIGKILL
    assert shop.commits() == 1  # the lake's own first commit: nothing of the run is visible
    code, ran, err = runnel(shop, "run")
    assert (code, ran["state"], err) == (0, "succeeded", "")
    assert {step["table"]: step["action"] for step in ran["steps"]} == {"ods.orders": "ingest", "dws.day": "reuse"}
    assert set(ran) >= {"run", "state", "commit", "branch", "seconds", "steps"}
    assert set(ran["steps"][0]) >= {"table", "action", "rows", "seconds", "state", "error"}
    code, ran, _ = runnel(shop, "run")
    assert (code, ran["state"], ran["commit"]) == (0, "nothing", None)
    code, plan, _ = runnel(shop, "plan")
    assert (code, plan["jvm"], {step["action"] for step in plan["steps"]}) == (0, False, {"skip"})


def test_a_failed_run_ends_with_one(shop: Project) -> None:
    shop.flow(FLOW.replace('"amount"', '"amonut"'))
    code, ran, _ = runnel(shop, "run")
    assert (code, ran["state"], ran["commit"]) == (1, "failed", None)
    error = next(step["error"] for step in ran["steps"] if step["error"])
    assert error["code"] == "RUN_COLUMN_UNKNOWN" and error["at"].startswith("flows/flow.py:") and error["fix"]


def test_a_mistake_ends_with_two(shop: Project) -> None:
    shop.flow(FLOW.replace("day(orders)", "day(ordres)"))
    code, told, _ = runnel(shop, "run")
    assert (code, told["error"]["code"]) == (2, "PLAN_UNKNOWN_INPUT")


def test_ctrl_c_cancels_the_jobs_and_leaves_nothing_visible(shop: Project) -> None:
    shop.flow(FLOW + SLOW.replace("ROOT", str(shop.root)))
    line = [str(RUNNEL), "-C", str(shop.root), "run"]
    running = interruptible(line)
    until = time.monotonic() + 120
    while not (shop.root / "started").exists() and time.monotonic() < until:
        time.sleep(0.1)
    children = _children(running.pid)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, out + err
    assert "Traceback" not in out + err and "nothing was published" in err
    assert shop.commits() == 1
    assert all(gone(child) for child in children)
    shop.flow(FLOW)
    assert did(shop.run("ods.orders"))["ods.orders"] == "ingest"


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]
