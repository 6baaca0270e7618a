"""What must hold, scenario by scenario, on real Spark and Iceberg."""

import datetime as dt

import pytest

from runnel.errors import RunnelError
from runnel.lake.merge.merge import NeedsRun
from tests.run.project import Project, did, reasons

pytestmark = pytest.mark.cluster

D1, D2 = dt.date(2026, 1, 1), dt.date(2026, 1, 2)

CLEAN = """
@rn.task("dwd.orders", inputs={"orders": "ods.orders"}, rowwise=True, key="id")
def orders_clean(orders):
    return orders.where(F.col("amount") > 0)
"""
DAYS = """
@rn.task("dws.day", inputs={"orders": "dwd.orders"})
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
"""


@pytest.fixture
def shop(project: Project) -> Project:
    """Two layers over one file of orders, run once."""
    project.flow(CLEAN + DAYS)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7), (3, "2026-01-02", 0))
    assert did(project.run()) == {"ods.orders": "ingest", "dwd.orders": "full", "dws.day": "full"}
    assert project.rows("dws.day") == [(D1, 12)]
    return project


def test_add_one_file_only_its_rows_are_computed(shop: Project) -> None:
    shop.orders("b", (4, "2026-01-02", 3))
    done = shop.run()
    assert did(done) == {"ods.orders": "ingest", "dwd.orders": "rows", "dws.day": "full"}
    assert {str(step.table): step.rows for step in done.steps}["dwd.orders"] == 1
    assert shop.rows("dws.day") == [(D1, 12), (D2, 3)]


def test_add_nothing_nothing_is_computed_and_there_is_no_commit(shop: Project) -> None:
    before = shop.commits()
    plan = shop.plan()
    assert not plan.jvm and {step.action for step in plan.steps} == {"skip"}
    done = shop.run()
    assert (done.state, done.commit, did(done), shop.commits()) == ("nothing", None, {}, before)


def test_change_a_file_its_old_rows_are_replaced_and_downstream_follows(shop: Project) -> None:
    shop.orders("a", (1, "2026-01-01", 5), (2, "2026-01-02", 8))
    assert did(shop.run())["ods.orders"] == "ingest"
    assert shop.rows("dwd.orders") == [(1, D1, 5), (2, D2, 8)]
    assert shop.rows("dws.day") == [(D1, 5), (D2, 8)]


@pytest.mark.parametrize(
    ("option", "left"), [('removed="keep"', [(D1, 12), (D2, 3)]), ('removed="delete"', [(D1, 12)])]
)
def test_delete_a_file(project: Project, option: str, left: list[object]) -> None:
    project.flow(CLEAN + DAYS, orders=f", {option}")
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7))
    project.orders("b", (4, "2026-01-02", 3))
    project.run()
    (project.root / "data/orders/b.csv").unlink()
    assert project.run().state == ("nothing" if "keep" in option else "succeeded")
    assert project.rows("dws.day") == left


def test_rename_a_file_with_the_same_content(shop: Project) -> None:
    folder = shop.root / "data/orders"
    (folder / "a.csv").rename(folder / "z.csv")
    assert not shop.plan().jvm
    assert did(shop.run()) == {"ods.orders": "ingest"}  # its position moves, and nothing else
    assert shop.rows("dws.day") == [(D1, 12)]
    assert shop.run().state == "nothing"
    shop.orders("z", (1, "2026-01-01", 6))
    shop.run()
    assert shop.rows("dws.day") == [(D1, 6)]


SHAPES = {
    # what is edited in: (before, after): (is it computed again?)
    "code": ('F.sum("amount")', 'F.max("amount")', True),
    "a comment": ("def day(orders):", "def day(orders):  # per day", False),
    "formatting": (
        '.agg(F.sum("amount").alias("revenue"))',
        '.agg(\n        F.sum("amount").alias("revenue")\n    )',
        False,
    ),
    "a constant that it reaches": ("FACTOR = 1", "FACTOR = 2", True),
    "a helper that it reaches": ("return column * 1", "return column * 10", True),
    "a helper that it does not reach": ("return 1", "return 2", False),
    "a docstring": ('"""Revenue per day."""', '"""Money."""', False),
}
SHAPED = '''
FACTOR = 1

def scaled(column):
    return column * 1

def unused():
    return 1

@rn.task("dws.day", inputs={"orders": "ods.orders"})
def day(orders):
    """Revenue per day."""
    orders = orders.withColumn("amount", scaled(F.col("amount")) * FACTOR)
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
'''


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Project:
    project = Project(tmp_path_factory.mktemp("shaped"), spark)  # type: ignore[arg-type]
    project.flow(SHAPED)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7))
    project.run()
    return project


@pytest.mark.parametrize(("before", "after", "computed"), SHAPES.values(), ids=SHAPES)
def test_change_code(shaped: Project, before: str, after: str, computed: bool) -> None:
    assert before in SHAPED
    shaped.flow(SHAPED.replace(before, after))
    plan = shaped.plan("dws.day")
    assert plan.steps[0].action == ("full" if computed else "skip"), plan.steps[0].reason
    if computed:
        assert "changed at flows/flow.py:" in plan.steps[0].reason


def test_change_code_is_computed(shaped: Project) -> None:
    shaped.flow(SHAPED.replace("FACTOR = 1", "FACTOR = 3"))
    assert did(shaped.run()) == {"dws.day": "full"}
    assert shaped.rows("dws.day") == [(D1, 36)]
    shaped.flow(SHAPED)
    assert did(shaped.run()) == {"dws.day": "reuse"}
    assert shaped.rows("dws.day") == [(D1, 12)]


def test_change_a_closure_value_and_two_instances_of_a_template(project: Project) -> None:
    template = """
    def above(name, least):
        @rn.task(f"dws.{name}", inputs={"orders": "ods.orders"})
        def large(orders):
            return orders.where(F.col("amount") >= least)

    above("small", 1)
    above("large", LARGE)
    """
    project.flow(template.replace("LARGE", "6"))
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7))
    project.run()
    assert (len(project.rows("dws.small")), len(project.rows("dws.large"))) == (2, 1)
    project.flow(template.replace("LARGE", "8"))
    assert did(project.run()) == {"dws.large": "full"}
    assert project.rows("dws.large") == []


def test_change_a_parameter_and_back(project: Project) -> None:
    project.flow("""
    @rn.task("dws.large")
    def large(orders, *, least: int = 6):
        return orders.where(F.col("amount") >= least)
    """)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", 7))
    project.run()
    assert reasons(project.plan(params=("least=5",)))["dws.large"] == "full: its parameter `least` is 5, was 6"
    assert did(project.run(params=("least=5",))) == {"dws.large": "full"}
    assert len(project.rows("dws.large")) == 2
    plan = project.plan()
    assert not plan.jvm and reasons(plan)["dws.large"].startswith("reuse: ")
    assert did(project.run()) == {"dws.large": "reuse"}
    assert len(project.rows("dws.large")) == 1


def test_data_a_then_b_then_a_is_reused(shop: Project) -> None:
    text = (shop.root / "data/orders/a.csv").read_text()
    shop.orders("a", (9, "2026-01-01", 1))
    shop.run()
    assert shop.rows("dws.day") == [(D1, 1)]
    shop.write("data/orders/a.csv", text)
    plan = shop.plan()
    assert not plan.jvm and reasons(plan)["dws.day"].startswith("reuse: ")
    assert set(did(shop.run()).values()) == {"reuse"}
    assert shop.rows("dws.day") == [(D1, 12)]


BROKEN = """
@rn.task("dws.sick", inputs={"day": "dws.day"})
def sick(day):
    return day.select("revenu")

@rn.task("ads.last", inputs={"sick": "dws.sick"})
def last(sick):
    return sick
"""


def test_a_failing_task(shop: Project) -> None:
    before = shop.commits()
    shop.orders("b", (4, "2026-01-02", 3))
    shop.flow(CLEAN + DAYS + BROKEN)
    done = shop.run()
    assert done.state == "failed" and done.commit is None and shop.commits() == before
    states = {str(step.table): step.state for step in done.steps}
    assert (states["dws.day"], states["dws.sick"], states["ads.last"]) == ("succeeded", "failed", "blocked")
    assert shop.rows("dws.day") == [(D1, 12)]
    (error,) = done.errors
    assert "sick" in error.what and "revenu" in error.what and (error.at or "").startswith("flows/flow.py:")
    assert done.log is not None and "Traceback" in open(done.log).read()  # noqa: PTH123, SIM115
    shop.flow((CLEAN + DAYS + BROKEN).replace('"revenu"', '"revenue"'))
    again = did(shop.run())
    assert (again["dwd.orders"], again["dws.day"]) == ("reuse", "reuse")
    assert (again["dws.sick"], again["ads.last"]) == ("full", "full")
    assert shop.rows("ads.last") == [(3,), (12,)] or shop.rows("ads.last") == [(12,), (3,)]


def test_a_diamond_is_one_commit_and_computed_once(project: Project) -> None:
    project.flow("""
    @rn.task("b.one", inputs={"orders": "ods.orders"})
    def one(orders):
        return orders.select("id")

    @rn.task("b.two", inputs={"orders": "ods.orders"})
    def two(orders):
        return orders.select("id", "amount")

    @rn.task("b.both")
    def both(one, two):
        return one.join(two, "id")
    """)
    project.orders("a", (1, "2026-01-01", 5))
    before = project.commits()
    done = project.run()
    assert [str(step.table) for step in done.steps].count("b.both") == 1
    assert did(done)["b.both"] == "full" and project.commits() == before + 1
    assert project.rows("b.both") == [(1, 5)]


def test_a_run_on_a_branch_then_merge(shop: Project) -> None:
    with shop.open() as lake:
        lake.branch("dev")
    shop.flow(CLEAN + DAYS.replace("F.sum", "F.max"))
    assert did(shop.run(branch="dev")) == {"dws.day": "full"}
    assert (shop.rows("dws.day"), shop.rows("dws.day", "dev")) == ([(D1, 12)], [(D1, 7)])
    with shop.open() as lake:
        lake.merge("dev")
    assert shop.rows("dws.day") == [(D1, 7)]
    assert shop.run().state == "nothing"


def test_main_moved_meanwhile_merge_run_computes_in_one_commit(shop: Project) -> None:
    with shop.open() as lake:
        lake.branch("dev")
    shop.flow(CLEAN + DAYS.replace("F.sum", "F.max"))
    shop.run(branch="dev")
    shop.flow(CLEAN + DAYS)
    shop.orders("b", (4, "2026-01-02", 3))
    shop.run()
    shop.flow(CLEAN + DAYS.replace("F.sum", "F.max"))
    before = shop.commits()
    with shop.open() as lake:
        with pytest.raises(NeedsRun, match=r"dws\.day"):
            lake.merge("dev")
        merged = lake.merge("dev", run=True)
        assert merged.commit is not None and merged.commit.kind == "merge"
    assert shop.commits() == before + 1
    assert shop.rows("dws.day") == [(D1, 7), (D2, 3)]
    assert shop.run().state == "nothing"


def test_revert_an_input(shop: Project) -> None:
    shop.orders("bad", (6, "2026-01-02", 1000))
    shop.run("ods.orders")
    with shop.open() as lake:
        lake.revert("main")
    assert shop.plan("ods.orders").steps[0].action == "skip"  # the reverted file is not read again by itself
    shop.run()
    assert shop.rows("dws.day") == [(D1, 12)]
    shop.orders("bad", (6, "2026-01-02", 10))
    shop.run()
    assert shop.rows("dws.day") == [(D1, 12), (D2, 10)]


def test_revert_a_whole_run(shop: Project) -> None:
    shop.orders("bad", (6, "2026-01-02", 1000))
    shop.run()
    with shop.open() as lake:
        lake.revert("main")
    assert shop.rows("dws.day") == [(D1, 12)]
    assert shop.run().state == "nothing"


def test_an_input_gains_a_column(project: Project) -> None:
    project.flow(
        """
        rn.source("ods.people", rn.manual())

        @rn.task("dws.names")
        def names(people):
            return people.select("name").distinct()

        @rn.task("dws.all")
        def everything(people):
            return people
        """,
        orders=None,
    )
    project.write("people.csv", "id,name\n1,ada\n2,bob\n")
    with project.open() as lake:
        lake.load("ods.people", project.root / "people.csv")
    project.run()
    with project.open() as lake:
        gain_column(lake, "ods.people", "note")
    done = project.run()
    assert did(done) == {"dws.all": "full"}
    assert {str(step.table): step.state for step in done.steps}["dws.names"] == "skipped"
    assert project.run().state == "nothing"


def gain_column(lake: object, table: str, column: str) -> None:
    """Add a column to a table as another engine does: by metadata alone."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.types import StringType

    store = lake.store  # type: ignore[attr-defined]
    catalog = SqlCatalog("main", uri=store.db.url.render_as_string(hide_password=False), warehouse=store.warehouse)
    with catalog.load_table(table).update_schema() as update:
        update.add_column(column, StringType())


def test_an_upstream_task_gains_a_column(project: Project) -> None:
    flow = """
    @rn.task("dwd.wide")
    def wide(orders):
        return orders.select("id", "amount"MORE)

    @rn.task("dws.total")
    def total(wide):
        return wide.agg(F.sum("amount").alias("total"))
    """
    project.flow(flow.replace("MORE", ""))
    project.orders("a", (1, "2026-01-01", 5))
    project.run()
    project.flow(flow.replace("MORE", ', "day"'))
    assert did(project.run()) == {"dwd.wide": "full"}
    assert project.run().state == "nothing"


def test_a_check_quarantines_rows(project: Project) -> None:
    project.flow("""
    @rn.task("dwd.orders", inputs={"orders": "ods.orders"}, rowwise=True,
             checks=[rn.check("amount >= 0", on_fail="quarantine")])
    def orders_clean(orders):
        return orders

    @rn.task("dws.total", inputs={"orders": "dwd.orders"})
    def total(orders):
        return orders.agg(F.sum("amount").alias("total"))
    """)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", -7))
    done = project.run()
    assert {str(step.table): step.set_aside for step in done.steps}["dwd.orders"] == 1
    assert project.rows("dws.total") == [(5,)]
    ((raw, reason, run),) = query(project, "select raw, reason, run from quarantine.dwd_orders")
    assert '"id":2' in raw and "amount >= 0" in reason and run == done.run
    project.orders("b", (3, "2026-01-02", -1), (4, "2026-01-02", 2))
    project.run()
    assert project.rows("dws.total") == [(7,)]
    assert query(project, "select count(*) from quarantine.dwd_orders") == [(2,)]


def test_discarded_rows_of_a_task_stay_away(project: Project) -> None:
    """The task is not computed for it; later bad rows are quarantined; a revert brings the rows back, and they stay."""
    project.flow("""
    @rn.task("dwd.orders", inputs={"orders": "ods.orders"}, rowwise=True,
             checks=[rn.check("amount >= 0", on_fail="quarantine")])
    def orders_clean(orders):
        return orders
    """)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-01", -7))
    project.run()
    with project.open() as lake:
        assert lake.discard("dwd.orders").rows == 1
    assert project.run().state == "nothing"
    assert query(project, "select count(*) from quarantine.dwd_orders") == [(0,)]
    with project.open() as lake:
        lake.revert("main")
    assert project.run().state == "nothing"
    assert query(project, "select count(*) from quarantine.dwd_orders") == [(1,)]
    with project.open() as lake:
        lake.discard("dwd.orders")
    project.orders("b", (3, "2026-01-02", -1), (4, "2026-01-02", 2))
    assert did(project.run()) == {"ods.orders": "ingest", "dwd.orders": "rows"}
    ((raw,),) = query(project, "select raw from quarantine.dwd_orders")
    assert '"id":3' in str(raw)
    assert project.run().state == "nothing"


def query(project: Project, sql: str) -> list[tuple[object, ...]]:
    with project.open() as lake:
        return lake.query(sql, engine="duckdb").rows()


def test_a_check_that_stops(shop: Project) -> None:
    shop.flow(CLEAN + DAYS.replace('"dwd.orders"})', '"dwd.orders"}, checks=[rn.check("revenue < 10")])'))
    done = shop.run()
    assert done.state == "failed" and done.errors[0].code == "CHECK_FAILED" and done.errors[0].exit_code == 1
    assert shop.rows("dws.day") == [(D1, 12)]


def test_a_selection_computes_only_what_it_selects(shop: Project) -> None:
    shop.orders("b", (4, "2026-01-02", 3))
    assert did(shop.run("dws.day")) == {}
    assert did(shop.run("+dwd.orders")) == {"ods.orders": "ingest", "dwd.orders": "rows"}
    assert shop.rows("dws.day") == [(D1, 12)]
    assert did(shop.run("dws.day")) == {"dws.day": "full"}
    assert shop.rows("dws.day") == [(D1, 12), (D2, 3)]


def test_code_changed_upstream_with_equal_contents(shop: Project) -> None:
    before = shop.commits()
    shop.flow(CLEAN.replace('F.col("amount") > 0', 'F.col("amount") >= 1') + DAYS)
    done = shop.run()
    states = {str(step.table): step.state for step in done.steps}
    assert (states["dwd.orders"], states["dws.day"]) == ("succeeded", "skipped")
    assert (done.state, shop.commits()) == ("nothing", before)
    assert shop.plan().work == ()


def test_full_refresh_reads_no_source_again(shop: Project) -> None:
    done = shop.run(full_refresh=True)
    assert {str(step.table): step.state for step in done.steps}["ods.orders"] == "skipped"
    assert done.state == "nothing"


def test_a_sql_task(shop: Project) -> None:
    shop.write(
        "flows/ads/top.sql",
        '/* runnel\nchecks = ["not_null(day)"]\nparams = { least = 10 }\n*/\n'
        "select day, revenue from dws.day where revenue >= :least\n",
    )
    assert did(shop.run()) == {"ads.top": "full"}
    assert shop.rows("ads.top") == [(D1, 12)]
    shop.write(
        "flows/ads/top.sql",
        "/* runnel\nchecks = ['not_null(day)']\nparams = { least = 10 }\n*/\n-- the best\n"
        "SELECT day,\n  revenue\nFROM dws.day WHERE revenue >= :least\n",
    )
    assert shop.run().state == "nothing"


def test_volatile_is_never_skipped(project: Project) -> None:
    project.flow("""
    @rn.task("dws.now", volatile=True)
    def now(orders):
        return orders.select("id", F.current_timestamp().alias("at"))
    """)
    project.orders("a", (1, "2026-01-01", 5))
    project.run()
    assert did(project.run()) == {"dws.now": "full"}


def test_unknown_branch_is_a_mistake(shop: Project) -> None:
    with pytest.raises(RunnelError, match="there is no branch `nope`"):
        shop.run(branch="nope")
