"""Exceptions that the author of a task names in `retry_on` are retried; others are not."""

import pytest

from tests.run.project import Project

FLOW = """
import pathlib

class Busy(RuntimeError):
    pass

def count(path):
    file = pathlib.Path(path)
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    return len(file.read_text())

@rn.task("dws.a", retries=1, retry_on={names!r})
def a(orders):
    if count({path!r}) < 2:
        raise Busy("come back later")
    return orders.select("id")
"""
UDF = """
@rn.task("dws.a", retries=1, retry_on="Busy")
def a(orders):
    def shaky(number, path={path!r}):
        import pathlib

        class Busy(Exception):
            pass

        file = pathlib.Path(path)
        if not file.exists():
            file.write_text("x")
            raise Busy("come back later")
        return number

    return orders.select(F.udf(shaky, "long")("id").alias("id"))
"""
CASES = {
    "its name": (["ValueError", "Busy"], "succeeded", 2),
    "its base class": ("RuntimeError", "succeeded", 2),
    "another": ("ValueError", "failed", 1),
}


@pytest.mark.parametrize(("names", "state", "calls"), CASES.values(), ids=CASES)
def test_exceptions_of_a_task(project: Project, names: object, state: str, calls: int) -> None:
    path = project.root / "calls"
    project.flow(FLOW.format(names=names, path=str(path)))
    project.orders("a", (1, "2026-01-01", 5))
    assert (project.run().state, len(path.read_text())) == (state, calls)


def test_exceptions_in_a_python_worker(project: Project) -> None:
    project.flow(UDF.format(path=str(project.root / "calls")))
    project.orders("a", (1, "2026-01-01", 5))
    assert project.run().state == "succeeded"
