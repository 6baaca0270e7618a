"""`runnel validate` tells all mistakes of a project, to people and to scripts."""

from pathlib import Path

FLOW = 'import runnel as rn\nrn.source("ods.orders", rn.manual())\nprint("noise")\n'
TASK = '@rn.task("dws.x")\ndef x({}): ...\n'


def test_validate(cli, tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    assert (empty := cli("validate")).code == 2 and "DECLARE_NO_FLOWS" in empty.err
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / "a.py").write_text(FLOW + TASK.format("orders") + 'rn.schedule("n", every="1 hour")')
    assert cli("validate").out == "1 task, 1 source, 1 schedule: no mistakes\n"
    assert cli("validate", "--json").json == {"tasks": 1, "sources": 1, "schedules": 1, "mistakes": []}
    (flows / "a.py").write_text(FLOW + TASK.format("ordres, *more"))
    wrong = cli("validate")
    assert wrong.code == 2 and wrong.err.endswith("\n\n2 mistakes\n") and "at flows/a.py:4" in wrong.err
    scripted = cli("validate", "--json")
    assert scripted.code == 2
    assert [mistake["code"] for mistake in scripted.json["mistakes"]] == ["DECLARE_TASK", "PLAN_UNKNOWN_INPUT"]


def test_a_schedule_that_selects_nothing(cli, tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows").mkdir()
    nothing = (
        'rn.schedule("a", every="1 hour", select="ods.ordres")',
        'rn.schedule("b", cron="@daily", select="tag:x")',
    )
    flow = FLOW.replace('print("noise")', "") + "\n".join(nothing)
    (tmp_path / "flows/a.py").write_text(flow)
    wrong = cli("validate")
    assert wrong.code == 2 and wrong.err == (
        "PLAN_SELECTS_NOTHING: schedule 'a': 'ods.ordres' selects no table; close: `ods.orders`\n"
        "  at flows/a.py:4\n"
        "  fix: known: `ods.orders`\n\n"
        "PLAN_SELECTS_NOTHING: schedule 'b': 'tag:x' selects no table\n"
        "  at flows/a.py:5\n"
        "  fix: nothing has a tag yet: add tags= to a task\n\n"
        "2 mistakes\n"
    )
    assert [mistake["at"] for mistake in cli("validate", "--json").json["mistakes"]] == ["flows/a.py:4", "flows/a.py:5"]
