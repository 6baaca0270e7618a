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
    assert {"runnel.toml", ".gitignore"} < set(made["files"])
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
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.spec_from_file_location("test_flows", tmp_path / "tests/test_flows.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [made for name, made in vars(module).items() if name.startswith("test_")]
    assert len(tests) >= 2
    for test in tests:
        test()
