"""Flow files are imported, linked, given their parameters, and imported anew when they change."""

import io
import subprocess
import sys
from decimal import Decimal

import pytest

from runnel.declare.model.endpoints import Files
from runnel.names import TableName
from tests.declare.conftest import Project

ORDERS = 'import runnel as rn\nrn.source("ods.orders", rn.manual())\n'
TOTAL = ORDERS + '@rn.task("d.total")\ndef total(orders, *, low: float = 0.0, spark): ...\n'
D_TOTAL = TableName("d", "total")


def test_a_task_as_declared(project: Project) -> None:
    text = '''
        import runnel as rn
        rn.source("ods.orders", rn.files("data/orders/*.csv", schema="order_id long", delimiter=";", header=False),
                  on_bad="drop", tags="raw")
        @rn.task("dws.seller_day", inputs={"o": "ods.orders"}, by=["day"], lookback={"o": 6},
                 by_input={"o": "to_date(ts)"},
                 timeout="10 minutes", tags=["daily"], properties={"a": 1}, partition="month(day)", sort="day desc",
                 checks=[rn.not_null("seller_id"), "revenue >= 0", "unique(seller_id, day)"])
        def seller_day(o, spark, *, low: float = 0):
            """Revenue.

            Of each seller.
            """
    '''
    flow = project.write({"flows/a.py": text}).load()
    source = flow.sources[TableName("ods", "orders")]
    assert isinstance(source.origin, Files)
    assert source.origin.options == (("delimiter", ";"), ("header", "false"))
    assert (source.on_bad, source.key, source.tags, str(source.place)) == ("drop", (), ("raw",), "flows/a.py:3")
    task = flow.tasks[TableName("dws", "seller_day")]
    assert task.inputs == (("o", TableName("ods", "orders")),)
    assert (task.params, task.takes_spark) == ((("low", 0.0),), True)
    assert type(task.params[0][1]) is float
    assert task.description == "Revenue.\n\nOf each seller."
    assert str(task.place) == "flows/a.py:5"
    assert task.options.lookback == (("o", 6),) and task.options.timeout_seconds == 600
    assert task.options.properties == (("a", "1"),)
    assert [check.text for check in task.checks] == ["not_null(seller_id)", "revenue >= 0", "unique(seller_id, day)"]
    assert task.function is not None and task.function.__runnel_task__.table == task.table


def test_a_last_name_part_never_means_the_own_table(project: Project) -> None:
    flow = project.write({"flows/a.py": ORDERS + '@rn.task("dwd.orders")\ndef clean(orders): ...'}).load()
    assert flow.inputs_of(TableName("dwd", "orders")) == (TableName("ods", "orders"),)


def test_templates_declare_as_often_as_they_are_called(project: Project) -> None:
    template = """
        import runnel as rn
        def daily(name, column):
            @rn.task(f"dws.{name}_daily", inputs={"table": f"ods.{name}"})
            def build(table):
                return column
    """
    flows = 'import runnel as rn\nfrom templates import daily\nfor name in ("a", "b"):\n'
    flows += '    rn.source(f"ods.{name}", rn.manual())\n    daily(name, name + "_at")\n'
    flow = project.write({"templates.py": template, "flows/x.py": flows}).load()
    assert [str(table) for table in flow.tasks] == ["dws.a_daily", "dws.b_daily"]
    functions = [task.function for task in flow.tasks.values()]
    assert [function(None) for function in functions if function] == ["a_at", "b_at"]
    assert {str(task.place) for task in flow.tasks.values()} == {"templates.py:4"}


def test_files_import_each_other_and_each_is_executed_once(project: Project) -> None:
    files = {
        "flows/__init__.py": "",
        "flows/a.py": "import shared\nfrom flows import shared as two\nfrom . import shared as three\n"
        "assert shared is two is three\nfrom flows.sub.deep import X",
        "flows/shared.py": TOTAL + "import lib.tools as tools\nY = tools.Z\nimport json\nassert json.dumps",
        "flows/sub/deep.py": "from ..shared import Y\nX = Y",
        "flows/json.py": "raise SystemExit",  # never stands in for the standard library
        "lib/tools.py": "Z = 1",
    }
    project.write(files)
    assert "flows/json.py ends the program" in project.mistakes()
    (project.root / "flows/json.py").unlink()
    assert list(project.load().tasks) == [D_TOTAL]


def test_changed_code_is_picked_up(project: Project) -> None:
    project.write(
        {"helpers.py": "LOW = 1", "flows/a.py": TOTAL.replace(": ...", ": return helpers.LOW") + "import helpers"}
    )
    for text, expected in (("LOW = 1", 1), ("LOW = 2", 2), ("LOW = 3", 3)):  # the same size, within one second
        project.write({"helpers.py": text})
        function = project.load().tasks[D_TOTAL].function
        assert function is not None and function(None, spark=None) == expected
    assert "helpers" not in sys.modules and "flows.a" not in sys.modules


def test_a_module_imported_inside_a_task_is_found_later(project: Project) -> None:
    late = "    import late_helpers\n    return late_helpers.X\n"
    project.write({"late_helpers.py": "X = 5", "flows/a.py": TOTAL.replace(" ...", "\n" + late)})
    function = project.load().tasks[D_TOTAL].function
    assert function is not None and function(None, spark=None) == 5


def test_functions_travel_by_value(project: Project) -> None:
    """A worker of Spark's has neither the project's files nor Runnel."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    text = ORDERS + "import helpers\ndef double(x): return helpers.TWICE * x\n"
    text += '@rn.task("d.total")\ndef total(orders): return double\n'
    project.write({"helpers.py": "TWICE = 2", "flows/a.py": text})
    function = project.load().tasks[D_TOTAL].function
    assert function is not None
    code = "import sys, pickle; sys.modules['runnel'] = None; print(pickle.load(sys.stdin.buffer)(21))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=cloudpickle.dumps(function(None)), capture_output=True, check=False, cwd="/"
    )
    assert done.stdout.strip() == b"42", done.stderr.decode()


def test_what_flow_files_print_is_kept_off_standard_output(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write({"flows/a.py": ORDERS + "print('hello')"}).load()
    assert capsys.readouterr() == ("", "hello\n")


PARAMS = {
    "default": ({}, (), {}, 0.0),
    "toml": ({"runnel.toml": '[project]\nname = "s"\n[params]\nlow = 1\n'}, (), {}, 1.0),
    "environment file": (
        {"runnel.toml": '[project]\nname = "s"\n[params]\nlow = 1\n', "runnel.prod.toml": "[params]\nlow = 2.5\n"},
        (),
        {"env": "prod"},
        2.5,
    ),
    "variable": (
        {"runnel.prod.toml": "[params]\nlow = 2\n"},
        (),
        {"env": "prod", "environ": {"RUNNEL__PARAMS__LOW": "3"}},
        3.0,
    ),
    "--set": ({}, ("low=4",), {"environ": {"RUNNEL__PARAMS__LOW": "3"}}, 4.0),
}


@pytest.mark.parametrize(("files", "overrides", "how", "expected"), PARAMS.values(), ids=PARAMS)
def test_parameters_come_in_the_published_order(project: Project, files, overrides, how, expected) -> None:
    flow = project.write({"flows/a.py": TOTAL, **files}).load(*overrides, **how)
    assert flow.tasks[D_TOTAL].params == (("low", expected),)


def test_set_values_that_fit_nothing(project: Project) -> None:
    project.write({"flows/a.py": TOTAL})
    assert "`low` is set to 'much', but must be a number" in project.mistakes("low=much")
    assert "--set lo=... reaches no task: none has a keyword parameter `lo`; close: `low`" in project.mistakes("lo=1")


def test_params_of_a_file_that_fit_nothing(project: Project) -> None:
    project.write({"flows/a.py": TOTAL, "runnel.toml": '[project]\nname = "s"\n[params]\nlo = 1\n'})
    assert project.mistakes() == (
        "DECLARE_PARAM_UNKNOWN: `lo` of [params] reaches no task: none has a keyword parameter `lo`; close: `low`\n"
        f"  at {project.root}/runnel.toml\n  fix: the parameters are: low"
    )
    project.write({"runnel.toml": '[project]\nname = "s"\n', "runnel.prod.toml": "[params]\nlow = 2\nhigh = 3\n"})
    shown = project.mistakes(env="prod")
    assert "`high` of [params] reaches no task" in shown and f"at {project.root}/runnel.prod.toml" in shown
    shown = project.mistakes(environ={"RUNNEL__PARAMS__LOWS": "3"})
    assert "`lows` of [params] reaches no task" in shown and "at the environment" in shown


def test_a_parameter_from_elsewhere_is_not_shown_where_it_is_wrong(project: Project) -> None:
    text = '[project]\nname = "s"\n[params]\nlow = { env = "LOW" }\n'
    project.write({"flows/a.py": TOTAL, "runnel.toml": text})
    for environ in ({"LOW": "hunter2"}, {"LOW": "1", "RUNNEL__PARAMS__LOW": "hunter2"}):
        shown = project.mistakes(environ=environ)
        assert "hunter2" not in shown
        assert "`low` is set to a value that is not shown, but must be a number" in shown


NEEDS_SPARK = "rn.source('ods.early', rn.manual())\nfrom pyspark.sql import functions as F\nIS_LARGE = F.col('x') > 1\n"


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the Spark session that other tests may have started in this process."""
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


@pytest.mark.usefixtures("no_session")
def test_a_file_that_needs_a_session_is_a_mistake_where_none_can_be_started(project: Project) -> None:
    shown = project.write({"flows/a.py": TOTAL + NEEDS_SPARK}).mistakes()
    assert "DECLARE_NEEDS_SPARK: flows/a.py needs a Spark session while it is imported\n  at flows/a.py:7" in shown


@pytest.mark.usefixtures("no_session")
def test_a_file_that_needs_a_session_is_imported_again_with_one(project: Project) -> None:
    """What starts Spark here only lets the file through: the file looks whether it was asked."""
    started = io.StringIO()
    text = TOTAL + "from shared import LINE\n"
    shared = """
        import builtins
        from pyspark.sql import functions as F
        if not hasattr(builtins, "spark_is_there"):
            F.col("x")
        LINE = 1
    """
    project.write({"flows/a.py": text, "flows/shared.py": shared})
    import builtins

    def start() -> None:
        started.write("once")
        builtins.spark_is_there = True  # type: ignore[attr-defined]

    try:
        flow = project.load(start_spark=start)
    finally:
        del builtins.spark_is_there  # type: ignore[attr-defined]
    assert started.getvalue() == "once"
    assert str(flow.started_spark) == "flows/shared.py:5"
    assert len(flow.tasks) == len(flow.sources) == 1


def test_declaring_again_in_a_notebook_replaces() -> None:
    import runnel as rn
    from runnel.declare.registry import current_registry

    for number in (1, 2):

        @rn.task("scratch.cell", tags=[f"v{number}"])
        def cell() -> None: ...

    found = [draft for draft in current_registry().tasks if draft.table == TableName("scratch", "cell")]
    assert [draft.options.tags for draft in found] == [("v2",)]


VALUES = {
    "int": ("*, a: int = 0", "a=5", 5),
    "bool": ("*, a: bool = False", "a=true", True),
    "decimal": ("*, a: 'Decimal' = None", "a=1.50", Decimal("1.50")),
    "by its default": ("*, a=1", "a=7", 7),
    "optional": ("*, a: int | None = None", "a=7", 7),
    "text": ("*, a: str = ''", "a=7", "7"),
}


@pytest.mark.parametrize(("signature", "given", "expected"), VALUES.values(), ids=VALUES)
def test_text_becomes_what_the_parameter_asks_for(project: Project, signature, given, expected) -> None:
    project.write({"flows/a.py": f'import runnel as rn\n@rn.task("d.total")\ndef total({signature}): ...'})
    (value,) = [value for _, value in project.load(given).tasks[D_TOTAL].params]
    assert value == expected and type(value) is type(expected)


def test_a_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    import runnel as rn

    secret = rn.secret("SHOP_PASSWORD")
    with pytest.raises(rn.RunnelError, match="SHOP_PASSWORD"):
        secret.reveal()
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    assert secret.reveal() == "s3cret" and "s3cret" not in f"{secret} {secret!r}"


def test_the_lines_of_a_long_file_are_right(project: Project) -> None:
    text = "import runnel as rn\n" + "".join(f'rn.source("ods.t{n}",\n  rn.manual())\n' for n in range(500))
    flow = project.write({"flows/a.py": text}).load()
    assert [source.place.line for source in flow.sources.values()] == list(range(2, 1002, 2))
