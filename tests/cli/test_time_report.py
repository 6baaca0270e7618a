"""How `runnel runs RUN` shows where time went."""

import pytest

from runnel.cli.time_report import describe_spark_problems, show_time_report

STEPS = [
    {"table": "ods.orders", "spent": {"read": 2.0}, "spark": None},
    {
        "table": "dws.seller_day",
        "spent": {"wait": 2.0, "plan": 1.0, "read": 2.0, "compute": 3.0, "check": 1.0, "write": 1.0},
        "spark": {
            "spill_memory_bytes": 2 << 30,
            "spill_disk_bytes": 512 << 20,
            "skew": {"longest_seconds": 9.0, "median_seconds": 0.5, "times": 18.0},
        },
    },
]
SHOWN = """
where its time went: 0.30 s in the queue, 8.00 s in steps
seconds        wait plan read compute check write
ods.orders               2.00                     rrrrrrrr
dws.seller_day 2.00 1.00 2.00    3.00  1.00  1.00 ········pppprrrrrrrrcccccccccccckkkkwwww
all            0.30 1.00 4.00    3.00  1.00  1.00
spill: dws.seller_day moved 2.0 GiB out of memory, 512.0 MiB on disk
skew: dws.seller_day waited 9.00 s for one task, half of its tasks took 0.50 s or less
"""


def test_a_run_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    spent = {"wait": 0.3, "plan": 1.0, "read": 4.0, "compute": 3.0, "check": 1.0, "write": 1.0}
    show_time_report(STEPS, {"queue": 0.3, "plan": 0.001, "steps": 8.0}, spent)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == SHOWN.rstrip().splitlines()


def test_what_is_little_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    skew = {"longest_seconds": 0.9, "median_seconds": 0.1, "times": 9.0}
    assert (
        list(
            describe_spark_problems(
                [{"table": "a.b", "spark": {"spill_memory_bytes": 0, "spill_disk_bytes": 0, "skew": skew}}]
            )
        )
        == []
    )
    show_time_report([{"table": "a.b", "state": "skipped"}], {}, {})
    assert capsys.readouterr().out == ""
