"""How much more two processes of plain DuckDB do on this machine than one: what two executors could reach at best."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figure import Figure

_PROGRAM = """
import sys
import duckdb
connection = duckdb.connect(config={"threads": 1, "memory_limit": "512MiB"})
print("ready", flush=True)
sys.stdin.readline()
for file in sys.argv[1:]:
    connection.execute(f"COPY (SELECT * FROM '{file}') TO '{file}.copy' (FORMAT parquet, COMPRESSION zstd)")
"""


def measure_machine(name: str, files: Sequence[Path]) -> Figure:
    """Return the throughput of two processes that copy files to Parquet, divided by that of one."""
    alone = _copy([files])
    together = _copy([files[::2], files[1::2]])
    details: dict[str, object] = {"one_seconds": round(alone, 2), "two_seconds": round(together, 2)}
    return Figure(f"{name}: two processes of plain DuckDB / one, throughput", alone / together, details=details)


def _copy(groups: Sequence[Sequence[Path]]) -> float:
    """Return the seconds in which a process for each group has copied its files."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *map(str, group)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for group in groups
    ]
    for process in processes:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("DuckDB did not start")
    started = time.perf_counter()
    for process in processes:
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
    if any(process.wait() for process in processes):
        raise RuntimeError("DuckDB could not copy the files")
    seconds = time.perf_counter() - started
    for file in (file for group in groups for file in group):
        Path(f"{file}.copy").unlink()
    return seconds
