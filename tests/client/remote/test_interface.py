"""Both lakes have one face: the same methods with the same parameters, and the same types."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

from runnel.client.lake import Lake
from runnel.client.remote.lake import RemoteLake
from runnel.errors import Mistake
from tests.client.remote.conftest import Pair

OWN = {"store", "settings"}  # of the project's folder


def face(kind: type) -> dict[str, str]:
    """Return the public methods, each with its signature as text."""
    found = {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}
    return {name: _signature(value) for name, value in found.items() if name not in OWN}


def _signature(value: Any) -> str:
    return str(inspect.signature(value)).replace("'", "") if inspect.isfunction(value) else "a property"


def test_the_same_methods() -> None:
    assert face(RemoteLake) == face(Lake)
    assert len(face(Lake)) > 30


REFUSED = {
    "read": ("ods.orders",),
    "load": ("ods.orders", "a.csv"),
    "preview": ("dws.*", "2026-01-01", "2026-01-02"),
    "replay": ("main",),
}


@pytest.mark.parametrize(("name", "given"), REFUSED.items(), ids=REFUSED)
def test_what_needs_the_folder_says_what_to_do_instead(seen: Pair, name: str, given: tuple[str, ...]) -> None:
    with pytest.raises(Mistake) as error:
        getattr(seen.remote, name)(*given)
    assert error.value.code == "REMOTE_UNSUPPORTED" and error.value.fix
    assert seen.api.url in error.value.what
    with pytest.raises(Mistake, match="served by"):
        _ = seen.remote.spark


def test_no_server_and_no_spark_is_imported(seen: Pair) -> None:
    code = f"""
import sys, runnel as rn
with rn.open({seen.api.url!r}, token={seen.api.secret!r}) as lake:
    assert lake.query("select count(*) as n from ods.orders").rows() == [(3,)]
    lake.log(), lake.tables(), lake.runs(), lake.status(), lake.diff("main", "dev"), lake.ls("raw.docs")
sys.exit([name for name in ("pyspark", "py4j", "fastapi", "uvicorn", "starlette") if name in sys.modules] or 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
