"""Data, file names and messages can't give orders to the terminal; JSON and CSV stay exact."""

import ast
import json
from collections.abc import Callable
from pathlib import Path

from runnel.run.run_log import RunLog
from tests.cli.conftest import Done

CLI = Path(__file__).parents[2] / "runnel" / "cli"
ESCAPE, OVERRIDE = "\x1b]0;owned\x07", "\u202e"
PRINTERS = {"click.echo", "click.secho", "click.confirm", "click.prompt", "print"}


def test_data_is_shown_and_kept(shop: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text(json.dumps({"note": f"a{ESCAPE}{OVERRIDE}"}) + "\n")
    assert shop("load", "ods.notes", "notes.jsonl").code == 0
    query = ("query", "select note from ods.notes")
    assert shop(*query).out.splitlines()[1] == r"a\x1b]0;owned\x07\u202e"
    assert shop(*query, "--format", "csv").out == f"note\na{ESCAPE}{OVERRIDE}\n"
    assert json.loads(shop(*query, "--format", "jsonl").out) == {"note": f"a{ESCAPE}{OVERRIDE}"}
    assert shop(*query, "--json").json["rows"] == [[f"a{ESCAPE}{OVERRIDE}"]]


def test_names_and_messages_are_shown(shop: Callable[..., Done], tmp_path: Path) -> None:
    for name in (f"page{OVERRIDE}.txt", f"page{ESCAPE}.txt"):
        (tmp_path / name).write_text("x")
    assert shop("put", "raw.pages", f"page{OVERRIDE}.txt").code == 0
    texts = [
        shop("put", "raw.pages", f"page{ESCAPE}.txt").err,
        shop("ls", "raw.pages").out,
        shop("query", f"select `{ESCAPE}` from ods.orders").err,
        shop(f"{ESCAPE}").err,
        shop("branch", f"dev{OVERRIDE}").err,
    ]
    RunLog(tmp_path, "r1").write(f"stopped {ESCAPE}")
    texts.append((tmp_path / "r1.log").read_text())
    assert all(texts)
    assert not [text for text in texts if "\x1b" in text or "\x07" in text or OVERRIDE in text]
    assert r"page\x1b]0;owned\x07.txt" in texts[0] and r"page\u202e.txt" in texts[1]


def test_commands_print_in_one_place() -> None:
    calls = {
        f"{path.name}: {ast.unparse(node.func)}"
        for path in CLI.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTERS
    }
    assert calls == {"main.py: click.echo", "output.py: click.echo", "output.py: click.confirm"}


def test_rows_to_correct_are_exact_in_a_file(shop: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir(exist_ok=True)
    (tmp_path / "flows" / "notes.py").write_text(
        'import runnel as rn\n\nrn.source("ods.notes", rn.files("notes.csv", schema="id long, note string"), '
        'on_bad="quarantine")\n'
    )
    row = f"x,a{OVERRIDE}\u200b\x07"
    (tmp_path / "notes.csv").write_text(f"id,note\n1,good\n{row}\n")
    assert shop("run", "-s", "ods.notes").code == 0
    assert row in shop("quarantine", "ods.notes", "--raw").out
