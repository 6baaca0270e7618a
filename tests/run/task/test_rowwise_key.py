"""The key of a `rowwise` task is unique: a run that would put it there twice fails and names it; no row is lost."""

from tests.run.project import Project
from tests.run.run_inspection import actions

FLOW = """
@rn.task("dwd.orders", inputs={"orders": "ods.orders"}, rowwise=True, key="id")
def copied(orders):
    return orders.select("id", "amount")
"""
DAY = "2026-01-01"
MESSAGE = "key id"


def keyed(project: Project) -> Project:
    project.flow(FLOW)
    project.orders("a", (0, DAY, 1), (1, DAY, 2))
    project.orders("b", (10, DAY, 3))
    return project


def failed(project: Project) -> str:
    ran = project.run()
    assert ran.state == "failed" and len(ran.errors) == 1
    return str(ran.errors[0])


def test_a_key_that_stands_twice_at_first_is_named(project: Project) -> None:
    keyed(project).orders("c", (0, DAY, 9))
    message = failed(project)
    assert message.startswith("CHECK_FAILED: ") and MESSAGE in message and "id 0" in message


def test_a_key_that_comes_again_is_named_and_no_row_is_lost(project: Project) -> None:
    keyed(project).run()
    project.orders("c", (0, DAY, 9))
    message = failed(project)
    assert message.startswith("CHECK_FAILED: ") and MESSAGE in message and "id 0" in message
    assert project.rows("dwd.orders") == [(0, 1), (1, 2), (10, 3)]
    project.orders("c", (20, DAY, 9))
    assert actions(project.run()) == {"dwd.orders": "rows"}
    project.orders("a", (0, DAY, 5), (1, DAY, 2))
    assert actions(project.run()) == {"dwd.orders": "rows"}
    assert project.rows("dwd.orders") == [(0, 5), (1, 2), (10, 3), (20, 9)]


def test_rows_of_another_file_without_a_key_stay(project: Project) -> None:
    keyed(project)
    for name, amount in (("n", 7), ("m", 8)):
        project.write(f"data/orders/{name}.csv", f"id,day,amount\n,{DAY},{amount}\n")
    project.run()
    project.write("data/orders/n.csv", f"id,day,amount\n,{DAY},70\n")
    assert actions(project.run()) == {"dwd.orders": "full"}
    assert project.rows("dwd.orders") == [(0, 1), (1, 2), (10, 3), (None, 70), (None, 8)]
