"""Projects that `runnel init` makes run at once: each is declared without a mistake, runs, and passes its own tests."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import runnel as rn
from runnel.cli.flow.init import TEMPLATES
from runnel.cli.main import main
from runnel.declare.registry import collect_declarations
from runnel.project.planning.plan_project import load_project_flow
from tests.test_docs import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.cli.conftest import Done

Run = Callable[..., "Done"]
TABLES = {
    "shop": {"ods.orders": 8, "ods.sellers": 3, "dwd.paid_orders": 6, "dws.seller_day": 6, "ads.top_sellers": 3},
    "sql": {"ods.orders": 8, "ods.sellers": 3, "dwd.paid_orders": 6, "dws.seller_day": 6},
}


def test_what_is_said(cli: Run) -> None:
    done = cli("init", "shop")
    assert done.code == 0
    assert [line.split("  ")[1] for line in done.out.splitlines()[3:]] == [
        "cd shop",
        "runnel plan",
        "runnel run",
        'runnel query "select * from ads.top_sellers order by place"',
        "pytest",
        "runnel up",
    ]
    assert done.out.splitlines()[-1].endswith("run schedules and streams until Ctrl-C, with a REST API")
    assert cli("-C", "shop", "validate").out == "3 tasks, 2 sources, 1 schedule: no mistakes\n"
    assert cli("-C", "shop", "plan").out.endswith("3 to compute, 2 to ingest; reads at least 382 B; starts Spark\n")


@pytest.mark.parametrize("template", sorted(path.name for path in TEMPLATES.iterdir()))
def test_every_template_is_made_whole(cli: Run, tmp_path: Path, template: str) -> None:
    made = cli("init", "x", "--template", template, "--name", 'my "shop"', "--json").json
    assert made["template"] == template
    assert {"runnel.toml", ".gitignore", "pytest.ini"} < set(made["files"])
    assert all((tmp_path / "x" / file).is_file() for file in made["files"])
    with rn.open(tmp_path / "x") as lake:
        assert lake.settings.name == "my 'shop'"
    done = cli("-C", "x", "validate")
    assert (done.code, "DECLARE_NO_FLOWS" in done.err) == ((2, True) if template == "empty" else (0, False))


def test_what_is_there_stays(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert cli("init").code == 0
    assert (tmp_path / "README.md").read_text() == "mine"
    assert cli("init").code == 2
    unknown = cli("init", "y", "--template", "shp")
    assert unknown.code == 2 and "shop" in unknown.err


@pytest.fixture
def own_modules() -> Iterator[None]:
    """Forget the modules and declarations of a project when a test is done."""
    before = set(sys.modules)
    with collect_declarations("/nowhere") as registry:
        registry.root = None
        yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("flows", "test_flows"):
            del sys.modules[name]


@pytest.mark.usefixtures("own_modules")
def test_its_schedule_runs_in_a_new_project(cli: Run, tmp_path: Path) -> None:
    assert cli("init").code == 0
    with rn.open(tmp_path) as lake:
        (schedule,) = load_project_flow(lake).schedules
        assert {str(step.table) for step in lake.plan(schedule.select).work} == TABLES["shop"].keys()


@pytest.mark.parametrize("template", TABLES)
@pytest.mark.usefixtures("own_modules")
def test_it_runs_and_its_tests_pass(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: "SparkSession"
) -> None:
    monkeypatch.setattr(sys, "argv", ["runnel", "init", str(tmp_path), "--template", template])
    main()
    with rn.open(tmp_path) as lake:
        lake.spark_provider.replace(spark)
        done = lake.run()
        assert {str(step.table): step.rows for step in done.steps} == TABLES[template]
        assert lake.query("select reason from quarantine.dwd_paid_orders").rows() == [("amount > 0",)]
    assert run_tests(tmp_path, monkeypatch) >= 2


def run_tests(project: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Call the functions of tests/test_flows.py, as pytest would in the project's folder; return how many there are."""
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    spec = importlib.util.spec_from_file_location("test_flows", project / "tests/test_flows.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [function for name, function in vars(module).items() if name.startswith("test_")]
    for test in tests:
        test()
    return len(tests)


@pytest.mark.usefixtures("own_modules", "spark")
def test_the_pages_on_flows_and_tests_are_right(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("init", "--template", "empty").code == 0
    for page, path in {"flows.md": "flows/orders.py", "testing.md": "tests/test_flows.py"}.items():
        first_block = (ROOT / "docs" / page).read_text().split("```python\n")[1].partition("```")[0]
        assert first_block.startswith(f"# {path}\n")
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(first_block)
    assert cli("validate").out == "1 task, 1 source: no mistakes\n"
    assert run_tests(tmp_path, monkeypatch) == 1
