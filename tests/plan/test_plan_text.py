"""The text that `runnel plan` prints, as a whole."""

from textwrap import dedent

from runnel.names import TableName
from runnel.plan.plan_text import WIDTH, format_plan
from runnel.plan.steps import Plan, PlanStep
from tests.plan.factories import name


def plan(*steps: PlanStep, jvm: bool = False, **more) -> Plan:
    return Plan("main", "c0ffee", steps, jvm, **more)


def step(table: str, action: str, reason: str, **more) -> PlanStep:
    return PlanStep(name(table), action, reason, **more)


def skipped(number: int) -> list[PlanStep]:
    return [PlanStep(TableName("ods", f"t{at}"), "skip", "nothing changed") for at in range(number)]


MIXED = plan(
    step("ods.orders", "ingest", "1 new file", bytes=3_565_158),
    step("ods.rates", "skip", "no file matches data/rates/*.csv; its rows stay"),
    step("ods.sellers", "reuse", "1 changed file, already ingested"),
    step("dwd.orders", "rows", "ods.orders gets 1 new file", is_expected=True),
    step("dws.seller_day", "full", "its code changed at flows/orders.py:31", rows=1204, bytes=20_480),
    step("dws.x", "full", "ods.y gained the column `note`", rows=1, bytes=100, analyse=True),
    *skipped(12),
    jvm=True,
)


def shown(text: str) -> str:
    return dedent(text).lstrip("\n")


def test_a_plan():
    assert format_plan(MIXED) == shown("""
        table           action  reads                 why
        ods.orders      ingest  3.4 MiB               1 new file
        ods.rates       skip                          no file matches data/rates/*.csv;
                                                      its rows stay
        ods.sellers     reuse                         1 changed file, already ingested
        dwd.orders      ~rows                         ods.orders gets 1 new file
        dws.seller_day  full    1,204 rows, 20.0 KiB  its code changed at
                                                      flows/orders.py:31
        dws.x           full?   1 row, 100 B          ods.y gained the column `note`

        ~ expected: decided again when its inputs are ready
        ? analysed first: skipped if the task does not use what changed

        3 to compute, 1 to ingest, 1 reused, 13 skipped; reads at least 1,205 rows,
          3.4 MiB; starts Spark
        """)


def test_nothing_to_do():
    assert format_plan(plan(*skipped(17))) == "nothing to do: 17 skipped\n"
    assert format_plan(plan()) == "nothing to do\n"


def test_all_steps():
    assert format_plan(plan(*skipped(2)), all_steps=True) == shown("""
        table   action  why
        ods.t0  skip    nothing changed
        ods.t1  skip    nothing changed

        nothing to do: 2 skipped
        """)


def test_only_reused():
    assert format_plan(plan(step("dws.x", "reuse", "known since run r7 on branch dev"), *skipped(3))) == shown("""
        table  action  why
        dws.x  reuse   known since run r7 on branch dev

        1 reused, 3 skipped
        """)


def test_long_names_put_reasons_below():
    long = "dws." + "seller_revenue_per_day_and_region"
    why = "ods.orders gained 1,204 rows in 2 files; ods.sellers lost 3 rows in 1 file; by key order_id"
    assert format_plan(plan(step(long, "rows", why, rows=1207, bytes=5000), jvm=True)) == shown("""
        table                                  action  reads
            why
        dws.seller_revenue_per_day_and_region  rows    1,207 rows, 4.9 KiB
            ods.orders gained 1,204 rows in 2 files; ods.sellers lost 3 rows in 1 file;
            by key order_id

        1 to compute; reads about 1,207 rows, 4.9 KiB; starts Spark
        """)


def test_notes():
    text = format_plan(plan(*skipped(1), notes=("Spark was started by flows/a.py:3, while it was imported",)))
    assert text == "Spark was started by flows/a.py:3, while it was imported\n\nnothing to do: 1 skipped\n"


def test_no_line_is_too_long():
    assert max(map(len, format_plan(MIXED).splitlines())) <= WIDTH
