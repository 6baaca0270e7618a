"""`runnel compact` says where files were rewritten, if the settings of the project name a place."""

from pathlib import Path

import pytest


def test_the_place_of_the_work_is_shown_if_the_settings_name_one(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    for number in range(3):
        (tmp_path / "a.csv").write_text(f"id\n{number}\n")
        cli("load", "ods.o", "a.csv")
    monkeypatch.setenv("RUNNEL__SPARK__RUN_ON", "process")
    shown = cli("compact").out.splitlines()
    assert shown[1].startswith("ods.o") and shown[1].split()[1:3] == ["3", "1"]
    assert shown[2:] == ['ods.o was rewritten in this process: spark.run_on is "process"']
    cli("load", "ods.o", "a.csv")
    [result] = cli("compact", "--json").json
    assert (result["rows"], result["place"]) == (4, {"name": "process", "reason": 'spark.run_on is "process"'})
    monkeypatch.delenv("RUNNEL__SPARK__RUN_ON")
    cli("load", "ods.o", "a.csv")
    [result] = cli("compact", "--json").json
    assert result["rows"] == 5 and "place" not in result
