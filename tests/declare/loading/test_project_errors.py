"""Every mistake of a project is told at once, with its line, the near miss and a fix."""

import pytest

from runnel.declare.loading.loader import load_flow
from runnel.declare.loading.project_errors import ProjectMistakes
from runnel.declare.settings import load_settings
from runnel.errors import Mistake

ORDERS = 'import runnel as rn\nrn.source("ods.orders", rn.manual())\n'

CASES = {
    "key of files": (
        'rn.source("ods.a", rn.files("a/*.csv", schema="id long"), key="id")',
        """
DECLARE_OPTION: source `ods.a`: `key` has no effect on files: rows with equal keys in two files would both be kept
  at flows/a.py:3
  fix: rn.changes(rn.files(...), key="id", sequence_by="...") keeps the last row of each key; otherwise leave `key` out
""",
    ),
    "unknown input": (
        '@rn.task("dws.seller_day")\ndef seller_day(ordres): ...',
        """
PLAN_UNKNOWN_INPUT: task `seller_day` reads `ordres`, but no source or task makes it; close: `ods.orders`
  at flows/a.py:3
  fix: rename the parameter to `orders`, or pass inputs={"ordres": "ods.orders"}
""",
    ),
    "unknown input by full name": (
        '@rn.task("dws.x", inputs={"o": "ods.ordres"})\ndef x(o): ...',
        """
PLAN_UNKNOWN_INPUT: task `x` reads `ods.ordres`, but no source or task makes it; close: `ods.orders`
  at flows/a.py:3
  fix: pass inputs={"o": "ods.orders"}
""",
    ),
    "unknown input, nothing close": (
        '@rn.task("dws.x")\ndef x(weather): ...',
        """
PLAN_UNKNOWN_INPUT: task `x` reads `weather`, but no source or task makes it
  at flows/a.py:3
  fix: declare it: rn.source("ods.weather", rn.files(...)), or rn.manual() for a table that is loaded by hand
""",
    ),
    "ambiguous input": (
        'rn.source("raw.orders", rn.manual())\n@rn.task("dws.x")\ndef x(orders): ...',
        """
PLAN_AMBIGUOUS_INPUT: task `x` reads `orders`, which may be `ods.orders` or `raw.orders`
  at flows/a.py:4
  fix: pass inputs={"orders": "ods.orders"}
""",
    ),
    "two makers": (
        '@rn.task("ods.orders")\ndef orders(): ...',
        """
DECLARE_TWO_MAKERS: `ods.orders` is made twice: by the source at flows/a.py:2, and by the task at flows/a.py:3
  at flows/a.py:3
  fix: rename one of them, or remove it
""",
    ),
    "circle": (
        '@rn.task("d.a")\ndef a(c): ...\n@rn.task("d.b")\ndef b(a): ...\n@rn.task("d.c")\ndef c(b, orders): ...',
        """
PLAN_CYCLE: tasks need each other: d.a -> d.b -> d.c -> d.a
  at flows/a.py:3, flows/a.py:5, flows/a.py:7
  fix: let one of them read something else, or split it into two tasks
""",
    ),
    "circle of one": (
        '@rn.task("d.a", inputs={"a": "d.a"})\ndef a(a): ...',
        """
PLAN_CYCLE: a task reads its own table: d.a -> d.a
  at flows/a.py:3
  fix: let one of them read something else, or split it into two tasks
""",
    ),
    "unknown option": (
        '@rn.task("d.a", bye="day")\ndef a(orders): ...',
        "DECLARE_OPTION: task `d.a`: there is no option `bye`; close: `by`\n  at flows/a.py:3\n  fix: known: inputs,",
    ),
    "by is no text": ('@rn.task("d.a", by=5)\ndef a(orders): ...', "`by` must be a column or a list of them, not '5'"),
    "key is no text": ('@rn.task("d.a", key=["x", 1])\ndef a(orders): ...', "`key` must be a column or a list of them"),
    "key outside of the schema": (
        '@rn.task("d.a", key="idd", schema="id long")\ndef a(orders): ...',
        "`key` names 'idd', which is not in its schema; close: `id`",
    ),
    "bad duration": (
        '@rn.task("d.a", timeout="soon")\ndef a(orders): ...',
        "`timeout` must be a duration, not 'soon'\n  at flows/a.py:3\n  fix: write a number and a unit",
    ),
    "bad schema": (
        '@rn.task("d.a", schema="id lng")\ndef a(orders): ...',
        "SCHEMA_SYNTAX: task `d.a`: the schema 'id lng'",
    ),
    "bad retries": (
        '@rn.task("d.a", retries=-1)\ndef a(orders): ...',
        "`retries` must be a whole number, 0 or more, not '-1'",
    ),
    "bad output": ('@rn.task("d.a", output="apend")\ndef a(orders): ...', "`output` can't be 'apend'; close: `append`"),
    "reference is no input": (
        '@rn.task("d.a", reference=["order"])\ndef a(orders): ...',
        "`reference` names 'order', which is not one of its inputs; close: `orders`",
    ),
    "inputs names no parameter": (
        '@rn.task("d.a", inputs={"o": "ods.orders"})\ndef a(orders): ...',
        "`inputs` names 'o', which is not a positional parameter of its function",
    ),
    "positional parameter with a default": (
        '@rn.task("d.a")\ndef a(orders, low=0): ...',
        "`low` has a default, but it is in the position of a table\n  at flows/a.py:3\n"
        "  fix: write a `*` before it if it is a parameter: `*, low=0`",
    ),
    "star": (
        '@rn.task("d.a")\ndef a(*tables): ...',
        "DECLARE_TASK: task `d.a`: `*tables` does not say which tables it reads",
    ),
    "two stars": ('@rn.task("d.a")\ndef a(orders, **more): ...', "`**more` does not say which parameters it has"),
    "class": ('@rn.task("d.a")\nclass A: ...', "DECLARE_TASK: task `d.a`: it must decorate a function, not a class"),
    "generator": ('@rn.task("d.a")\ndef a(orders):\n    yield orders', "`a` yields, but a task returns one frame"),
    "no brackets": ("@rn.task\ndef a(orders): ...", "DECLARE_TASK: the task on 'a' has no table\n  at flows/a.py:3"),
    "bad table name": (
        '@rn.task("Orders")\ndef a(orders): ...',
        "NAME_TABLE: 'Orders' is not a table name\n  at flows/a.py:3",
    ),
    "parameter without value": ('@rn.task("d.a")\ndef a(*, low: int): ...', "the parameter `low` has no value"),
    "default of another type": (
        '@rn.task("d.a")\ndef a(*, low: int = "x"): ...',
        "task `a`: the parameter `low` has the default 'x', but must be a whole number",
    ),
    "unknown on_fail": (
        '@rn.task("d.a", checks=[rn.not_null("x", on_fail="quarantin")])\ndef a(orders): ...',
        "DECLARE_CHECK: `not_null(x)` has on_fail='quarantin'; close: `quarantine`\n  at flows/a.py:3",
    ),
    "table check with drop": (
        '@rn.task("d.a",\n  checks=[rn.unique("x", on_fail="drop")])\ndef a(orders): ...',
        "`unique(x)` applies to the whole table, so it has no rows to drop\n  at flows/a.py:4",
    ),
    "check with an unknown option": ('rn.not_null("x", onfail="drop")', "DECLARE_CHECK: not_null() got an unexpected"),
    "check that swallows": ('rn.check("a > 0 -- note")', "has '--' that does not belong there"),
    "check with an open bracket": ('rn.check("(a > 0")', "lacks a closing ')'"),
    "reference to an unknown table": (
        '@rn.task("d.a", checks=[rn.references("x", "ods.order.id")])\ndef a(orders): ...',
        "refers to `ods.order`, but no source or task makes it; close: `ods.orders`",
    ),
    "schema missing": (
        'rn.source("ods.x", rn.files("data/*.csv.gz"))',
        "DECLARE_SCHEMA_MISSING: source `ods.x` reads CSV, which does not say the types of its columns, "
        "and has no schema\n"
        '  at flows/a.py:3\n  fix: rn.files("data/*.csv.gz", schema=',
    ),
    "format unknown": ('rn.source("ods.x", rn.files("data/*"))', "the file extension does not show the format"),
    "CSV option for Parquet": (
        'rn.files("data/*.parquet", header=True)',
        "`header` applies only to CSV, but this is Parquet",
    ),
    "function source": (
        '@rn.source("ods.rates", schema="a long")\ndef rates(last, more): ...\n@rn.task("d.a")\ndef a(rates): ...',
        "source `ods.rates`: `rates` takes 2 parameters, but a source takes only its last state\n  at flows/a.py:3",
    ),
    "origin is text": ('rn.source("ods.x", "data/*.csv")', "source `ods.x` can't come from 'data/*.csv'"),
    "on_bad": ('rn.source("ods.x", rn.manual(), on_bad="skip")', "source `ods.x`: `on_bad` can't be 'skip'"),
    "exception with its module": (
        '@rn.task("d.a", retry_on="requests.HTTPError")\ndef a(): ...',
        "task `d.a`: 'requests.HTTPError' of `retry_on` is not the name of an exception\n"
        "  at flows/a.py:3\n"
        '  fix: write retry_on="RuntimeError", without its module',
    ),
    "cron": ('rn.schedule("n", cron="0 25 * * *")', "DECLARE_CRON: '25' in '0 25 * * *' is not a hour"),
    "cron of four": ('rn.schedule("n", cron="0 2 * *")', "DECLARE_CRON: '0 2 * *' is not a cron text"),
    "cron of an unknown nickname": (
        'rn.schedule("n", cron="@dayly")',
        "DECLARE_CRON: '@dayly' is not a cron text; close: `@daily`\n"
        "  at flows/a.py:3\n"
        "  fix: use one of @hourly, @daily,",
    ),
    "cron of a last day": (
        'rn.schedule("n", cron="0 2 LL * *")',
        "DECLARE_CRON: 'LL' in '0 2 LL * *' is not a day of month\n"
        "  at flows/a.py:3\n"
        "  fix: use 1 to 31, L for the last day, *, lists, ranges a-b, or steps */n",
    ),
    "cron that never comes": (
        'rn.schedule("n", cron="0 0 31 2 *")',
        "DECLARE_CRON: '0 0 31 2 *' is never due: none of the months that it names has such a day\n"
        "  at flows/a.py:3\n"
        "  fix: name a day that one of its months has",
    ),
    "cron of a day that short months lack": (
        'rn.schedule("n", cron="0 0 31 4,6,sep *")',
        "DECLARE_CRON: '0 0 31 4,6,sep *' is never due",
    ),
    "zone": ('rn.schedule("n", cron="0 2 * * *", tz="Asia/Shangai")', "'Asia/Shangai' is not a time zone"),
    "no seconds": ('rn.schedule("n", every="0 seconds")', "schedule 'n': `every` must be a second at least"),
    "rows without a change": (
        'rn.schedule("n", every="1 hour", min_rows=5)',
        "schedule 'n': `min_rows` goes with on_change",
    ),
    "catch up how": (
        'rn.schedule("n", every="1 hour", catch_up="lats")',
        "schedule 'n': `catch_up` can't be 'lats'; close: `last`",
    ),
    "no time": ('rn.schedule("n", select="x")', "schedule 'n': it does not say when"),
    "two schedules": (
        'rn.schedule("n", every="1 hour")\nrn.schedule("n", every="1 day")',
        "two schedules are called 'n': at flows/a.py:3 and at flows/a.py:4",
    ),
    "schedule on an unknown table": (
        'rn.schedule("n", on_change="ods.order")',
        "schedule 'n' names `ods.order`, but no source or task makes it; close: `ods.orders`",
    ),
    "deadline": (
        '@rn.task("d.a", deadline="8 o clock")\ndef a(orders): ...',
        "`deadline` can't be '8 o clock'\n  at flows/a.py:3\n  fix: write a time of day, 06:30, 06:30:15 or",
    ),
    "zone of a deadline": (
        '@rn.task("d.a", deadline="08:00 Asia/Shangai")\ndef a(orders): ...',
        "task `d.a`: 'Asia/Shangai' is not a time zone",
    ),
    "alert to nobody": ('rn.alert("a")', "alert 'a': it names no channel"),
    "alert in two ways": (
        'rn.alert("a", webhook="https://x/y", command="z")',
        "alert 'a': it has webhook and command, but needs one of them",
    ),
    "alert about what": (
        'rn.alert("a", command="z", on="fail")',
        "alert 'a': `on` can't be 'fail'; close: `failed`",
    ),
    "alert without a server": ('rn.alert("a", email="a@b.org")', "alert 'a': `smtp` is missing"),
    "alert to no address": (
        'rn.alert("a", email="ada", smtp="smtp://host")',
        "alert 'a': 'ada' is not an e-mail address",
    ),
    "alert with a password": (
        'rn.alert("a", email="a@b.org", smtp="smtp://u:p@host")',
        "alert 'a': the address has a password in it",
    ),
    "alert with a written password": (
        'rn.alert("a", email="a@b.org", smtp="smtp://u@host", password="p")',
        "alert 'a': `password` is a secret, which must not be in a file",
    ),
    "alert with a written token": (
        'rn.alert("a", webhook="https://x/y", headers={"Authorization": "Bearer 1"})',
        "alert 'a': `Authorization` in `headers` is a secret",
    ),
    "alert to no url": ('rn.alert("a", webhook="host/x")', "alert 'a': the address must start with http://"),
    "headers of an e-mail": (
        'rn.alert("a", command="z", headers={"X": "y"})',
        "alert 'a': `headers` goes with webhook",
    ),
    "open quotes": ("""rn.alert("a", command="z 'x")""", "can't be read: no closing quotation"),
    "unknown option of an alert": (
        'rn.alert("a", command="z", selct="x")',
        "alert 'a': there is no option `selct`; close: `select`",
    ),
    "two alerts": (
        'rn.alert("n", command="z")\nrn.alert("n", command="z")',
        "DECLARE_ALERT: two alerts are called 'n': at flows/a.py:3 and at flows/a.py:4",
    ),
    "quarantines collide": (
        'rn.source("a.b_c", rn.manual(), on_bad="quarantine")\nrn.source("a_b.c", rn.manual(), on_bad="quarantine")',
        "DECLARE_QUARANTINE: `a.b_c` and `a_b.c` would both put rows into `quarantine.a_b_c`\n  at flows/a.py:4",
    ),
    "quarantine layer": (
        'rn.source("quarantine.x", rn.manual())',
        "DECLARE_QUARANTINE: source `quarantine.x` is in the layer",
    ),
    "import error": (
        "def f():\n    return 1 / 0\nf()",
        "DECLARE_IMPORT: flows/a.py can't be imported: ZeroDivisionError: division by zero\n  at flows/a.py:4",
    ),
    "no such module": (
        "import nowhere_at_all",
        "ModuleNotFoundError: No module named 'nowhere_at_all'\n  at flows/a.py:3",
    ),
    "no such name": ('rn.taks("d.a")', "module 'runnel' has no attribute 'taks'; close: 'task'\n  at flows/a.py:3"),
    "syntax error": ("x = = 1", "DECLARE_SYNTAX: this is not valid Python: invalid syntax\n  at flows/a.py:3"),
    "exit": (
        "import sys\nsys.exit(3)",
        "DECLARE_EXIT: flows/a.py ends the program (exit code 3) while it is imported\n  at flows/a.py:4",
    ),
    "endless template": (
        'def layer(n):\n    rn.source(f"ods.t{n}", rn.manual())\n    layer(n + 1)\nlayer(0)',
        "DECLARE_RECURSION: the template `layer` calls itself endlessly\n  at flows/a.py:5",
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_one_mistake(project, text: str, expected: str) -> None:
    shown = project.write({"flows/a.py": ORDERS + text}).mistakes()
    assert expected.strip() in shown
    if expected.startswith("\n"):
        assert shown == expected.strip()
    assert "mistakes" not in shown, "one mistake causes no others"


def test_all_mistakes_are_told_at_once(project) -> None:
    project.write(
        {
            "flows/a.py": ORDERS + '@rn.task("d.a", by=1)\ndef a(ordres): ...\n',
            "flows/b.py": "import nowhere_at_all\nmake('d.c')\n",
            "flows/c.py": 'import runnel as rn\n@rn.task("d.b")\ndef b(c, a): ...\n',  # the broken file may make c
            "flows/d/x.sql": "select * form ods.orders",
        }
    )
    with pytest.raises(ProjectMistakes) as caught:
        load_flow(load_settings(project.root))
    assert [(mistake.code, mistake.at) for mistake in caught.value.all] == [
        ("DECLARE_OPTION", "flows/a.py:3"),
        ("PLAN_UNKNOWN_INPUT", "flows/a.py:3"),
        ("DECLARE_IMPORT", "flows/b.py:1"),
        ("SQL_SYNTAX", "flows/d/x.sql:1"),
    ]
    assert str(caught.value).endswith("\n\n4 mistakes")
    assert caught.value.to_json()["code"] == "DECLARE_OPTION" and caught.value.exit_code == 2


def test_a_broken_helper_is_told_once(project) -> None:
    files = {"flows/a.py": "import shared", "flows/b.py": "from flows import shared", "flows/shared.py": "1 / 0"}
    with pytest.raises(ProjectMistakes) as caught:
        project.write(files).load()
    assert {mistake.at for mistake in caught.value.all} == {"flows/shared.py:1"}


@pytest.mark.parametrize("files", [{}, {"flows/notes.txt": ""}, {"flows/a.py": "import runnel"}])
def test_a_project_without_flows(project, files: dict[str, str]) -> None:
    shown = project.write(files).mistakes()
    assert shown.startswith("DECLARE_NO_FLOWS") and "runnel init" in shown


def test_outside_of_a_loader_a_mistake_is_raised_at_once() -> None:
    import runnel as rn

    with pytest.raises(Mistake, match="there is no option `bye`"):

        @rn.task("d.outside", bye="day")
        def outside() -> None: ...
