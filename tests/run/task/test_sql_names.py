"""SQL tasks as people write them: qualified columns, recursion, misspelled words."""

import pytest

from tests.run.project import Project

SOURCES = """
rn.source("ods.orders", rn.files("data/orders/*.csv", schema="id long, day date, amount long"))
rn.source("ods.users", rn.files("data/users/*.csv", schema="id long, day date, name string"))
"""
ANSWERS = {
    "the table's name": ("select orders.amount from ods.orders", [(5,), (6,)]),
    "its full name": ("select ods.orders.amount from ods.orders", [(5,), (6,)]),
    "a star": ("select orders.* except (id, day) from ods.orders", [(5,), (6,)]),
    "a join": (
        "select users.name, ods.orders.amount from ods.orders join ods.users on orders.id = users.id",
        [("ann", 5)],
    ),
    "recursion": (
        "with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) "
        "select n, amount from t join ods.orders on n = id",
        [(1, 5), (2, 6)],
    ),
    "a comparison in a cube": (
        "select id > 1 as late, sum(amount) as total from ods.orders group by cube(id > 1)",
        [(False, 5), (None, 11), (True, 6)],
    ),
    "a column and a comparison in a cube": (
        "select amount as paid, id > 1 as late, count(*) as n from ods.orders group by cube(amount, id > 1) "
        "having grouping_id() < 2",
        [(5, False, 1), (5, None, 1), (6, None, 1), (6, True, 1)],
    ),
}
REFUSALS = {
    "a misspelled first word": (
        "selct id from ods.orders",
        "SQL_SYNTAX: a task is a SELECT, but its SQL starts with 'selct'; close: `select`",
    ),
    "an unknown function": (
        "select to_dat(day) as d from ods.orders",
        "RUN_FUNCTION_UNKNOWN: task `dws.t` calls a function that is not there: Spark has no function `to_dat`; "
        "close: `to_date`\n  at flows/dws/t.sql:1\n  fix: write to_date(...)",
    ),
}


@pytest.fixture
def shop(project: Project) -> Project:
    project.flow(SOURCES, orders=None)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-02", 6))
    project.write("data/users/a.csv", "id,day,name\n1,2025-12-01,ann\n")
    return project


@pytest.mark.parametrize(("sql", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_answers(shop: Project, sql: str, expected: list[tuple[object, ...]]) -> None:
    shop.write("flows/dws/t.sql", sql)
    result = shop.run()
    assert [str(error) for error in result.errors] == []
    assert shop.rows("dws.t") == expected


@pytest.mark.parametrize(("sql", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(shop: Project, sql: str, message: str) -> None:
    shop.write("flows/dws/t.sql", sql)
    try:
        errors = [str(error) for error in shop.run().errors]
    except Exception as error:
        errors = [str(error)]
    assert len(errors) == 1 and errors[0].startswith(message)


def test_a_clock_is_warned_of_with_the_way_out(shop: Project) -> None:
    shop.write("flows/dws/t.sql", "select id, current_date() as today from ods.orders")
    warnings = [warning for step in shop.run().steps for warning in step.warnings]
    assert warnings == [
        "uses `current_date`, which may differ each time it is computed; "
        'pass the value in (`params = { today = "2026-01-31" }` in its options, `:today` in the SQL, '
        "`runnel run --set today=...`), or write volatile = true: then the task is never skipped"
    ]
    shop.write(
        "flows/dws/t.sql",
        '/* runnel\nparams = { today = "2026-01-31" }\n*/\nselect id, :today as today from ods.orders',
    )
    assert [warning for step in shop.run().steps for warning in step.warnings] == []
