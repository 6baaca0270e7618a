"""The code of runs is kept once by its contents, and as long as something names it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.flow_state import results, runs
from runnel.lake.flow_state.code_store import ProjectCode, load_code
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.store import Store
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from tests.lake.flow_state.test_results import result

NOW = Retention(commits="0 seconds", failed="0 seconds", grace="0 seconds")
ONE = ProjectCode({"runnel.toml": b"[project]", "flows/a.py": b"a = 1"})
TWO = ProjectCode({"runnel.toml": b"[project]", "flows/a.py": b"a = 2"})


def keep(store: Store, code: ProjectCode, run: str = "r1") -> None:
    runs.start(store.db, run, "main", "ada", {}, code=code)


def count(store: Store) -> int:
    query = sa.select(sa.func.count()).select_from(schema.code)
    return int(store.db.read(lambda connection: connection.execute(query).scalar_one()))


def test_equal_files_are_kept_once(both: Store, tmp_path: Path) -> None:
    for code in (ONE, TWO, ONE):
        keep(both, code)
    assert count(both) == 5  # two manifests, three different files
    found = both.db.read(lambda connection: load_code(connection, TWO.id))
    assert found == TWO and both.db.read(lambda connection: load_code(connection, "0" * 64)) is None
    TWO.write(tmp_path / "out")
    assert (tmp_path / "out/flows/a.py").read_bytes() == b"a = 2"


def test_the_id_is_that_of_the_contents() -> None:
    assert ProjectCode(dict(reversed(ONE.files.items()))).id == ONE.id != TWO.id
    assert ProjectCode({"b.py": b"a = 1"}).id != ProjectCode({"a.py": b"a = 1"}).id


def test_code_goes_when_nothing_names_it(both: Store) -> None:
    keep(both, ONE)
    keep(both, TWO, "r2")
    results.record(both.db, result(provenance={"code_id": TWO.id, "params": {"x": f'"code_id": "{ONE.id}"'}}))
    later = datetime.now(UTC) + timedelta(minutes=1)
    kept = Retention(grace="0 seconds")
    assert gc(both, kept, now=later, dry_run=True).expired_codes == 1
    assert gc(both, kept, now=later).expired_codes == 1
    assert both.db.read(lambda connection: load_code(connection, ONE.id)) is None
    assert both.db.read(lambda connection: load_code(connection, TWO.id)) == TWO
    assert gc(both, NOW, now=later + timedelta(days=4)).expired_codes == 1
    assert count(both) == 0


def test_code_of_a_run_that_goes_on_stays(both: Store) -> None:
    with acquire_pin(both.db, "write"):
        keep(both, ONE)
        assert gc(both, NOW).expired_codes == 0
    assert both.db.read(lambda connection: load_code(connection, ONE.id)) == ONE


@pytest.mark.parametrize("name", ["r1", "r"])
def test_a_run_is_found_by_its_beginning(store: Store, name: str) -> None:
    keep(store, ONE)
    assert store.db.read(lambda connection: runs.find_run(connection, name)).id == "r1"
    with pytest.raises(Mistake, match="there is no run"):
        store.db.read(lambda connection: runs.find_run(connection, "x"))
