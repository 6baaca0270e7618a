"""What `runnel erase` prints: what it removes, then exactly what it leaves and what to do about it."""

from dataclasses import replace

from runnel.cli.lake.upkeep import _format_erasure, _result_json
from runnel.lake.upkeep.erase.derived_tables import DerivedTable
from runnel.lake.upkeep.erase.erase import ErasedQuarantine, ErasureResult
from runnel.model.work_place import PROCESS, WorkPlace

EXPECTED = """\
422 rows of ods.events would be erased, 1,933 copies in 12 versions
from what streams read: dws.pages
3 events of its inbox would be erased
1 row of quarantine.ods_events would be erased
left: 2 rows of quarantine.ods_events, which the condition can't test
  look at them
left: dws.pages on dev, main, which was computed from it and may hold data derived from the rows
  runnel stream reset dws.pages
left: what sink copy has delivered, outside the lake
left: 4 files until open writes have ended and gc has run"""


def test_everything_that_is_left_is_named() -> None:
    found = ErasureResult(
        "ods.events",
        ("user",),
        rows=422,
        copies=1933,
        files=9,
        versions=12,
        left=4,
        streams=("dws.pages",),
        events=3,
        quarantine=ErasedQuarantine("quarantine.ods_events", 1, 2, "look at them"),
        downstream=(DerivedTable("dws.pages", ("dev", "main"), "runnel stream reset dws.pages"),),
        sinks=("copy",),
        dry_run=True,
    )
    assert _format_erasure(found) == EXPECTED
    here = replace(found, place=WorkPlace(PROCESS, "Spark has no cluster"), left=0)
    assert _format_erasure(here).splitlines()[-1] == "files were searched in this process: Spark has no cluster"
    assert _result_json(here)["place"] == {"name": "process", "reason": "Spark has no cluster"}
    assert "place" not in _result_json(found)
