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
