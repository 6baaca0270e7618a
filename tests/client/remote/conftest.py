"""One served shop that tests only read, and a fresh one, each with a lake that is opened by its address."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.client.remote.lake import RemoteLake
from tests.service.api.api_server import Api, serving, shop

ODD = pa.table(
    {
        "a": pa.array([[1, None], None], pa.list_(pa.int64())),
        "m": pa.array([[("x", 1.5)], []], pa.map_(pa.string(), pa.float64())),
        "s": pa.array(
            [{"d": Decimal("1.50"), "t": ["y"]}, None],
            pa.struct({"d": pa.decimal128(9, 2), "t": pa.list_(pa.string())}),
        ),
        "b": pa.array([b"\x00\xff", None], pa.binary()),
        "n": pa.array([datetime(2026, 1, 2, 3, 4, 5), None], pa.timestamp("us")),
        "z": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None], pa.timestamp("us", "UTC")),
        "big": pa.array([Decimal("12345678901234567890.123456"), None], pa.decimal128(38, 6)),
    }
)


@dataclass
class Pair:
    """The same lake from within and from afar."""

    local: Lake
    remote: RemoteLake
    api: Api


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Serve a shop that no test changes."""
    folder = tmp_path_factory.mktemp("seen_from_afar")
    pq.write_table(ODD, folder / "odd.parquet")
    with shop(folder) as lake, serving(lake) as api:
        lake.load("raw.odd", folder / "odd.parquet")
        with rn.open(api.url, token=api.secret) as remote:
            yield Pair(lake, remote, api)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Serve a shop of its own."""
    with shop(tmp_path) as lake, serving(lake) as api, rn.open(api.url, token=api.secret) as remote:
        yield Pair(lake, remote, api)
