"""What an editor sees of a flow: decorated functions keep their types, and wrong calls are marked."""

import os
import sys
from pathlib import Path
from subprocess import run

ROOT = Path(__file__).parent.parent
FLOW = """
import runnel as rn
from pyspark.sql import DataFrame

rn.source("ods.orders", rn.files("data/*.csv", schema="id long"), partition="id")
rn.schedule("nightly", cron="0 2 * * *")

@rn.task("dws.day", by="day", checks=[rn.not_null("id"), rn.check("n >= 0", on_fail="quarantine"), "n < 5"])
def day(orders: DataFrame, *, least: float = 0.0) -> DataFrame:
    return orders

reveal_type(day)
reveal_type(rn.testing.run(day, orders=[{"id": 1}]).rows)
with rn.open("shop") as lake:
    reveal_type(lake.plan(["dws.*"], branch="dev"))
    reveal_type(lake.run())
    reveal_type(lake.query("select 1").rows())
with rn.open("http://127.0.0.1:8470", token="x") as remote:
    reveal_type(remote.run())
"""
WRONG = """
import runnel as rn

rn.source("ods.orders", rn.manual(), on_bad="explode")
rn.check("n >= 0", on_fail="explode")
rn.task("dws.day", rowwise="yes")
rn.nothing
"""


def test_a_flow_is_typed(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(FLOW)
    (tmp_path / "wrong.py").write_text(WRONG)
    words = ["--no-error-summary", "--follow-imports=silent", "--hide-error-context", "--config-file="]
    words += [f"--cache-dir={tmp_path}", "--no-pretty", "right.py", "wrong.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}  # mypy does not see a package that is installed to be edited
    done = run(
        [sys.executable, "-m", "mypy", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout.splitlines()
    assert [
        line.partition("Revealed type is ")[2].replace("builtins.", "") for line in said if "note: Rev" in line
    ] == [
        '"def (orders: pyspark.sql.dataframe.DataFrame, *, least: float =) -> pyspark.sql.dataframe.DataFrame"',
        '"list[dict[str, Any]]"',
        '"runnel.plan.steps.Plan"',
        '"runnel.run.results.run_result.RunResult"',
        '"list[tuple[Any, ...]]"',
        '"runnel.run.results.run_result.RunResult"',
    ], done.stdout
    marked = {line.split(":")[1] for line in said if line.startswith("wrong.py") and ": error: " in line}
    assert marked == {"4", "5", "6", "7"}, done.stdout
    assert not any(line.startswith("right.py") and ": error: " in line for line in said), done.stdout
