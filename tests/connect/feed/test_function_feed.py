"""Sources that are functions: what they return is in their table once, and their state goes with its version."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.errors import RunnelError
from tests.run.project import Project, did

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATES = """
import json
from pathlib import Path
from typing import TYPE_CHECKING

@rn.source("ods.rates", schema="day date, rate decimal(8,4)"{options})
def rates(state):
    rows = json.loads((Path(__file__).parent.parent / "rates.json").read_text())
    seen = (state or {{}}).get("seen", 0)
    return rows[seen:], {{"seen": len(rows)}}
"""
ONE, TWO = {"day": "2026-01-01", "rate": "1.1"}, {"day": "2026-01-02", "rate": "1.2"}


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.flow(RATES.format(options=""), orders=None)
    return project


def put(project: Project, *rows: object) -> None:
    import json

    project.write("rates.json", json.dumps(rows))


def days(project: Project) -> list[str]:
    return [str(row[0]) for row in project.rows("ods.rates")]


def test_a_bad_row_publishes_nothing_and_is_read_again(shop: Project) -> None:
    put(shop, ONE, {"day": "soon", "rate": "1.2"})
    assert "not a date" in str(shop.run().errors[0])
    put(shop, ONE, TWO)
    assert did(shop.run()) == {"ods.rates": "ingest"}
    assert days(shop) == ["2026-01-01", "2026-01-02"]


def test_bad_rows_go_to_quarantine(shop: Project) -> None:
    shop.flow(RATES.format(options=', on_bad="quarantine"'), orders=None)
    put(shop, ONE, {"day": "soon", "rate": "1.2"})
    assert did(shop.run()) == {"ods.rates": "ingest"}
    assert days(shop) == ["2026-01-01"]
    ((raw, reason, file, *_),) = shop.rows("quarantine.ods_rates")
    assert "soon" in raw and "not a date" in reason and file == "rates()"


def test_a_merge_takes_the_quarantine_of_the_side_that_read_further(shop: Project) -> None:
    shop.flow(RATES.format(options=', on_bad="quarantine"'), orders=None)
    put(shop, ONE)
    shop.run()
    with shop.open() as lake:
        lake.branch("dev")
    bad, worse = {"day": "soon", "rate": "1.2"}, {"day": "never", "rate": "1.3"}
    put(shop, ONE, TWO, bad)
    shop.run()
    put(shop, ONE, TWO, bad, worse, {"day": "2026-01-03", "rate": "1.4"})
    shop.run(branch="dev")
    with shop.open() as lake:
        lake.merge("dev")
        assert [row.raw for row in lake.quarantine("ods.rates")] == [
            '{"day": "soon", "rate": "1.2"}',
            '{"day": "never", "rate": "1.3"}',
        ]
    assert days(shop) == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert shop.run().commit is None


def test_a_function_without_a_state_says_all_there_is(shop: Project) -> None:
    text = RATES.format(options="").replace("(state)", "()").replace("(state or {})", "{}")
    shop.flow(text.replace(', {"seen": len(rows)}', ""), orders=None)
    put(shop, ONE, TWO)
    shop.run()
    first = shop.run()
    assert first.commit is None
    put(shop, TWO)
    shop.run()
    assert days(shop) == ["2026-01-02"]


MISTAKES = {
    "no rows": ("return 5", "which are not rows"),
    "no mapping": ("return [5], {}", "which is not a mapping"),
    "state is no JSON": ("return [], {'a': object()}", "is not JSON"),
    "raises": ("raise ValueError('the API is down')", "ValueError: the API is down"),
}


@pytest.mark.parametrize(("body", "told"), MISTAKES.values(), ids=MISTAKES)
def test_what_a_function_does_wrong_is_told(body: str, told: str, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.flow(f'@rn.source("ods.rates", schema="day date")\ndef rates(state):\n    {body}\n', orders=None)
    error = project.run().errors[0]
    assert told in str(error) and isinstance(error, RunnelError) and "flows/flow.py" in str(error)


FORMS = {
    "rows": "[{'id': 1, 'name': 'a'}]",
    "a generator": "(row for row in [{'id': 1, 'name': 'a'}])",
    "Arrow": "__import__('pyarrow').table({'id': [1], 'name': ['a']})",
    "pandas": "__import__('pandas').DataFrame({'id': [1], 'name': ['a']})",
}


@pytest.mark.parametrize("made", FORMS.values(), ids=FORMS)
def test_rows_come_in_any_form(made: str, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.flow(f'@rn.source("ods.x", schema="id long, name string")\ndef x():\n    return {made}\n', orders=None)
    project.run()
    assert project.rows("ods.x") == [(1, "a")]


def test_a_frame_of_spark_is_taken(tmp_path: Path, spark: "SparkSession") -> None:
    project = Project(tmp_path, spark)
    body = "return spark.sql(\"select 1L as id, 'a' as name\"), {'done': True}"
    project.flow(f'@rn.source("ods.x")\ndef x(state, spark):\n    {body}\n', orders=None)
    project.run()
    assert project.rows("ods.x") == [(1, "a")]
