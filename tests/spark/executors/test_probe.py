"""Executors with another Python or other packages are refused before any work, with what differs."""

from dataclasses import replace

import pytest

from runnel.errors import Mistake
from runnel.spark.executors.probe import ExecutorFacts, check_facts, read_facts

OWN = read_facts(None)
DIFFERENT = {
    "another Python": (
        replace(OWN, python="3.9", executable="/usr/bin/python3"),
        f"executors run Python 3.9 (/usr/bin/python3), this process Python {OWN.python}",
    ),
    "another version": (
        replace(OWN, executable="/p", packages={**OWN.packages, "duckdb": "0.1"}),
        f"the packages of executors (/p) differ: duckdb 0.1 instead of {OWN.packages['duckdb']}",
    ),
    "a missing package": (
        replace(OWN, executable="/p", packages={**OWN.packages, "pandas": None}),
        f"the packages of executors (/p) differ: pandas is missing instead of {OWN.packages['pandas']}",
    ),
}


@pytest.mark.parametrize(("facts", "what"), DIFFERENT.values(), ids=DIFFERENT)
def test_differences_are_named(facts: ExecutorFacts, what: str) -> None:
    with pytest.raises(Mistake) as caught:
        check_facts(facts)
    assert caught.value.what == what
    assert "PYSPARK_PYTHON" in str(caught.value.fix)
