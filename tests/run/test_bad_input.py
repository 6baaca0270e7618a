"""Bad input: a clear error that names the task and the user's line, exit code 1 or 2, nothing published."""

from pathlib import Path

import pytest

from runnel.errors import RunnelError
from tests.run.project import Project

FAILS = {
    # body of the task: (code, words of the message)
    "returns None": ("orders.count()", "RUN_NOT_A_FRAME", "returns nothing"),
    "returns no frame": ("return 5", "RUN_NOT_A_FRAME", "int"),
    "duplicate columns": ('return orders.select("id", "id")', "RUN_DUPLICATE_COLUMN", "id"),
    "a column missing in an input": ('return orders.select("amonut")', "RUN_COLUMN_UNKNOWN", "amount"),
    "raises": ('raise ValueError("no luck")', "RUN_TASK_FAILED", "no luck"),
    "exits": ("import sys; sys.exit(3)", "RUN_TASK_EXIT", "exit"),
    "a UDF that raises on one row": (
        'f = F.udf(lambda x: 10 // (x - 7), "long")\n    return orders.select(f("amount").alias("x"))',
        "RUN_TASK_FAILED",
        "ZeroDivisionError",
    ),
    "a cast that fails": (
        'return orders.select(F.lit("seven").cast("int").alias("x"))',
        "RUN_TASK_FAILED",
        "seven",
    ),
    "reads behind Runnel's back": (
        'return orders.sparkSession.table("ods.other")',
        "RUN_UNDECLARED_INPUT",
        "ods.other",
    ),
    "reads from outside": (
        'return orders.sparkSession.read.text("ROOT/runnel.toml")',
        "RUN_OUTSIDE_READ",
        "runnel.toml",
    ),
}


@pytest.mark.parametrize(("body", "code", "words"), FAILS.values(), ids=FAILS)
def test_a_task(project: Project, body: str, code: str, words: str) -> None:
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7))
    project.write("other.csv", "x\n1\n")
    with project.open() as lake:
        lake.load("ods.other", project.root / "other.csv")
    before = project.commits()
    project.flow(
        f"""
rn.source("ods.other", rn.manual())

@rn.task("dws.sick")
def sick(orders):
    {body.replace("ROOT", str(project.root))}

@rn.task("dws.unrelated")
def unrelated(other):
    return other
"""
    )
    done = project.run()
    assert done.state == "failed" and project.commits() == before
    (error,) = done.errors
    assert (error.code, words in error.what) == (code, True), error
    assert "sick" in error.what and (error.at or "").startswith("flows/flow.py:")
    assert "Traceback" not in str(error) and "java." not in str(error) and "\tat " not in str(error)


DECLARED = {
    "a wrong type for its declared schema": (
        'schema="id long, amount string"',
        'return orders.select("id", "amount")',
        "RUN_SCHEMA",
        "bigint",
    ),
    "rowwise with an aggregate": (
        "rowwise=True",
        'return orders.groupBy("day").count()',
        "RUN_NOT_ROWWISE",
        "aggregate",
    ),
    "rowwise with a join": ("rowwise=True", 'return orders.join(orders.select("id"), "id")', "RUN_NOT_ROWWISE", "join"),
    "rowwise with a limit": ("rowwise=True", "return orders.limit(1)", "RUN_NOT_ROWWISE", "limit"),
    "rowwise with a window": (
        "rowwise=True",
        'return orders.selectExpr("id", "row_number() over (order by id) as n")',
        "RUN_NOT_ROWWISE",
        "window",
    ),
    "a check of an unknown column": ('checks=[rn.not_null("idd")]', "return orders", "CHECK_INVALID", "idd"),
    "checks of two unknown columns": (
        'checks=[rn.not_null("idd"), rn.check("amuont > 0")]',
        "return orders",
        "CHECK_INVALID",
        "names `amuont`, which is no column; close: `amount`",
    ),
    "checks of a table, of two unknown columns": (
        'checks=[rn.unique("idd"), rn.unique("amuont")]',
        "return orders",
        "CHECK_INVALID",
        "names `amuont`, which is no column; close: `amount`",
    ),
}


@pytest.mark.parametrize(("option", "body", "code", "words"), DECLARED.values(), ids=DECLARED)
def test_a_declaration_that_the_plan_contradicts(
    project: Project, option: str, body: str, code: str, words: str
) -> None:
    project.orders("a", (1, "2026-01-01", 5))
    project.flow(f'@rn.task("dws.sick", {option})\ndef sick(orders):\n    {body}\n')
    done = project.run()
    assert done.state == "failed" and done.commit is None
    (error,) = done.errors
    assert (error.code, words in str(error)) == (code, True), error


def test_wrong_checks_of_rows_and_of_the_table_are_named_at_once(project: Project) -> None:
    project.orders("a", (1, "2026-01-01", 5))
    project.flow("""
    @rn.task("dws.sick", checks=[rn.unique("dya"), rn.not_null("idd"), rn.check("amuont > 0")])
    def sick(orders):
        return orders
    """)
    (error,) = project.run().errors
    assert [line for line in str(error).splitlines() if line.startswith("CHECK_INVALID")] == [
        "CHECK_INVALID: the check `not_null(idd)` names `idd`, which is no column; close: `id`",
        "CHECK_INVALID: the check `amuont > 0` names `amuont`, which is no column; close: `amount`",
        "CHECK_INVALID: the check `unique(dya)` names `dya`, which is no column; close: `day`",
    ]


def test_a_frame_of_another_session(project: Project) -> None:
    project.orders("a", (1, "2026-01-01", 5))
    project.flow("""
    @rn.task("dws.sick")
    def sick(orders):
        return orders.sparkSession.newSession().range(3)
    """)
    (error,) = project.run().errors
    assert error.code == "RUN_OTHER_SESSION"


MISTAKES = {
    "no flows": (None, "DECLARE_NO_FLOWS"),
    "a flow file that exits": ("import sys\nsys.exit(1)", "DECLARE_EXIT"),
    "an import error": ("import nothing_like_this", "DECLARE_IMPORT"),
    "endless templates": ("def make():\n    make()\n\nmake()", "DECLARE_RECURSION"),
    "a glob without matches": (
        'import runnel as rn\nrn.source("ods.x", rn.files("none/*.csv", schema="id long"))',
        "SOURCE_NO_FILES",
    ),
}


@pytest.mark.parametrize(("text", "code"), MISTAKES.values(), ids=MISTAKES)
def test_a_project(tmp_path: Path, text: str | None, code: str) -> None:
    project = Project(tmp_path)
    if text is not None:
        project.write("flows/flow.py", text)
    with pytest.raises(RunnelError) as caught:
        project.run()
    assert (caught.value.code, caught.value.exit_code) == (code, 2)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runnel.connect.ingest import failpoints

    project, reach = Project(tmp_path), failpoints.reach
    project.flow("")
    project.orders("a", (1, "2026-01-01", 5))

    def changed(point: str) -> None:
        if point == failpoints.READ:
            project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-02", 6))
        reach(point)

    monkeypatch.setattr(failpoints, "reach", changed)
    done = project.run()
    assert (done.state, done.commit) == ("failed", None) and done.errors[0].code == "SOURCE_FILE_CHANGED"
    monkeypatch.undo()
    assert project.run().state == "succeeded" and len(project.rows("ods.orders")) == 2
