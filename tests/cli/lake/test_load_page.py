"""The commands at the top of docs/load.md work as they are written, one after the other."""

import shlex
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tests.test_docs import ROOT

if TYPE_CHECKING:
    from tests.cli.conftest import Done

ORDERS = "order_id,day,amount\n1,2026-01-02,5.00\n2,2026-01-03,6.50\n"
EXPECTED_LINES = [
    "created ods.orders: 2 rows from 1 file",
    "loaded ods.orders: 1 row from 1 file",
    "loaded ods.orders: 2 rows from 1 file",
    "created ods.sales: 2 rows from 1 file",
    "created ods.months: 2 rows from 1 file",
    "created ods.events: 1 row from 1 file",
]


def test_the_page_is_right(cli: Callable[..., "Done"], tmp_path: Path) -> None:
    assert cli("init", "--template", "empty").code == 0
    (tmp_path / "orders.csv").write_text(ORDERS)
    for folder, columns in {
        "data/2026": {"order_id": [3], "day": [date(2026, 1, 4)], "amount": [7.5]},
        "archive/day=2026-01-01": {"id": [1]},
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table(columns), tmp_path / folder / "a.parquet")
    block = (ROOT / "docs" / "load.md").read_text().split("\n\n")[1]
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert len(commands) == len(EXPECTED_LINES)
    for command, expected_line in zip(commands, EXPECTED_LINES, strict=True):
        if "--branch" in command:
            assert cli("branch", "dev").code == 0
        done = cli(*command)
        assert (done.code, done.out.partition(" (")[0]) == (0, expected_line), done.err
    for option, text in {"--partition": "day", "--schema": "amount string"}.items():
        assert cli("load", "ods.sales", "orders.csv", option, text).code == 2
