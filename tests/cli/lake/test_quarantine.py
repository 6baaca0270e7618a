"""What `runnel quarantine` prints, and that docs/sources.md is right about it, word for word."""

import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runnel.cli.lake.quarantine import _describe_next_step, _format_rows
from runnel.cli.main import main
from runnel.connect.load.quarantined_row import QuarantinedRow

RUNNEL = Path(sys.executable).parent / "runnel"
PAGE = (Path(__file__).parents[3] / "docs/sources.md").read_text()
VARYING = (
    (r"\d+\.\d s", "0.0 s"),
    (r"(commit|revert) [0-9a-f]{8}", r"\1 0"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r" +", " "),
)


def steady(text: str) -> str:
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    return text


class CommandLine:
    """Runs commands in this process, in the folder of a project."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.chdir(root)
        monkeypatch.setenv("COLUMNS", "200")

    def call(self, command: str) -> str:
        """Return what a command prints, or its error."""
        self._monkeypatch.setattr(sys, "argv", shlex.split(command))
        self._capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as exit_request:
            code = exit_request.code
        printed = self._capsys.readouterr()
        return printed.err if code else printed.out


def call_shell(root: Path, command: str) -> str:
    """Run a line of a shell in the project, and return what it prints, errors too."""
    environment = {"PATH": f"{RUNNEL.parent}:/usr/bin:/bin", "COLUMNS": "200", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=root, capture_output=True, text=True, check=False, env=environment
    )
    return done.stdout + (done.stderr if done.returncode else "")


def write_files(root: Path, session: str) -> None:
    (root / "runnel.toml").write_text('[project]\nname = "shop"\n')
    for name, text in re.findall(r"\$ cat (\S+\.(?:csv|py))\n(.+?)(?=\$ |\Z)", session, re.DOTALL):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_the_page_is_right(tmp_path: Path) -> None:
    part = PAGE.partition("## Quarantined rows")[2].partition("\n## ")[0]
    session = "".join(re.findall(r"```\n(\$ .+?)```", part, re.DOTALL))
    write_files(tmp_path, session.partition("$ runnel run")[0])
    commands = session.split("$ ")[1:]
    assert len(commands) == 12
    for text in commands:
        command, _, output = text.partition("\n")
        assert steady(call_shell(tmp_path, command)) == steady(output), command
    restored = call_shell(tmp_path, "runnel revert main && runnel quarantine ods.orders --raw")
    assert restored.endswith("quarantined_row,id,amount\ndata/orders/a.csv:4,3,six\n")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Two files of the same name in two folders."""
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    files = {
        "flows/flow.py": "import runnel as rn\nrn.source('ods.o', rn.files('data/**/*.csv', "
        "schema='id long, v long'), on_bad='quarantine')\n",
        "data/one/a.csv": "id,v\n1,x\n",
        "data/two/a.csv": "id,v\n2,y\n3,z\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command_line = CommandLine(tmp_path, monkeypatch, capsys)
    command_line.call("runnel run")
    return command_line


def test_messages(shop: CommandLine) -> None:
    (shop.root / "own.csv").write_text("id,v\n1,1\n")
    (shop.root / "moved.csv").write_text("id,v,quarantined_row\n1,1,data/one/a.csv:2\n")
    (shop.root / "twice.csv").write_text("quarantined_row,id,v\ndata/one/a.csv:2,1,1\ndata/one/a.csv:2,1,2\n")
    (shop.root / "empty.csv").write_text("quarantined_row,id,v\n,1,1\n")
    (shop.root / "renamed.csv").write_text("quarantined_row,id,w\ndata/one/a.csv:2,1,1\n")
    (shop.root / "other.csv").write_text("quarantined_row,id,v\ndata/one/c.csv:2,1,1\n")
    for command, expected in {
        "--file a.csv": "QUARANTINE_FILE: 2 files with quarantined rows are called a.csv: data/one/a.csv, "
        "data/two/a.csv\n  fix: name one of them with its folder: --file data/one/a.csv\n",
        "--file b.csv": "no row of ods.o that came from b.csv is set aside\n",
        "release own.csv": "RELEASE_FILES: own.csv does not say which of 2 files each of its rows belongs to\n"
        "  at own.csv:1\n  fix: correct the output of runnel quarantine ods.o --raw, whose first column says it, or "
        "release the rows of one file: --file NAME\n",
        "release moved.csv": "RELEASE_ROW: moved.csv: `quarantined_row` is not its first column\n  at moved.csv:1\n"
        "  fix: move it to the front again, where --raw wrote it\n",
        "release twice.csv": "RELEASE_ROW: twice.csv, line 3 corrects data/one/a.csv:2, as line 2 does\n"
        "  at twice.csv:3\n  fix: leave one of the lines: each row is released once; a row that holds two is "
        "corrected in its own file\n",
        "release empty.csv": "RELEASE_ROW: empty.csv, line 2: `quarantined_row` is empty, so it is unknown which row "
        "this corrects\n  at empty.csv:2\n  fix: copy the value from the output of runnel quarantine TABLE --raw\n",
        "release renamed.csv": "SOURCE_COLUMN_MISSING: renamed.csv lacks `v`\n  at renamed.csv:1\n"
        "  fix: keep the header that --raw wrote, and correct values only\n",
        "release other.csv": "RELEASE_NOTHING: no row of other.csv is in the quarantine of ods.o\n  at other.csv\n"
        "  fix: runnel quarantine ods.o --raw writes the rows that are there now\n",
        "discard": "DISCARD_CONFIRM: 3 quarantined rows of ods.o would be discarded\n"
        "  fix: add --yes; `runnel quarantine ods.o` shows them\n",
        "discard --yes --file one/a.csv": "1 quarantined row of ods.o discarded, commit 0; `runnel revert 0` restores "
        "them\n",
    }.items():
        assert steady(shop.call(f"runnel quarantine ods.o {command}")) == steady(expected), command


def test_files_that_can_not_be_read_have_no_rows_to_release(shop: CommandLine) -> None:
    (shop.root / "data/one/narrow.csv").write_text("id\n1\n")
    shop.call("runnel run")
    rows, note = call_shell(shop.root, "runnel quarantine ods.o --raw --file narrow.csv 2>&1"), "data/one/narrow.csv"
    assert rows == f"no rows of `{note}`, which can't be read: correct the file, and `runnel run` reads it again\n"
    assert shop.call("runnel quarantine ods.o release --file narrow.csv") == (
        "RELEASE_NOTHING: `data/one/narrow.csv` can't be read, so there are no rows of it to release\n"
        "  fix: correct the file, or the options of the source, and `runnel run` reads it again; "
        "`runnel quarantine ods.o discard` forgets it\n"
    )
    assert shop.call("runnel quarantine ods.o release --file none.csv") == (
        "RELEASE_NOTHING: no row of none.csv of `ods.o` is set aside on branch `main`\n"
        "  fix: `runnel quarantine ods.o` shows them\n"
    )


def test_a_release_that_releases_nothing_fails(shop: CommandLine) -> None:
    text = call_shell(shop.root, "runnel quarantine ods.o release --limit 1 || echo failed")
    assert text.endswith("2 more; --limit 0 shows all\n3 rows of ods.o: all still bad; nothing changed\nfailed\n")


def test_rows_that_are_left_out_stay(shop: CommandLine) -> None:
    (shop.root / "bad.csv").write_text("quarantined_row,id,v\ndata/two/a.csv:3,3,3\ndata/gone.csv:9,1,1\n")
    assert steady(shop.call("runnel quarantine ods.o release bad.csv")) == (
        "1 row went into ods.o; 2 rows not in bad.csv stay in quarantine; "
        "1 row of bad.csv is no longer in quarantine, commit 0\n"
    )
    assert shop.call("runnel quarantine ods.o --raw") == (
        "quarantined_row,id,v\ndata/one/a.csv:2,1,x\ndata/two/a.csv:2,2,y\n"
    )


def test_the_advice_for_rows_of_a_task() -> None:
    row = QuarantinedRow('{"id":2}', "amount >= 0", None, "r1", datetime(2026, 1, 2, tzinfo=UTC))
    assert _format_rows([row]) == ('set aside (UTC)      cause        row\n2026-01-02 00:00:00  amount >= 0  {"id":2}')
    assert _describe_next_step("dwd.trips", [row]) == (
        "a task made these rows: correct the task, its check or what it reads, and `runnel run` computes it again; "
        "`runnel quarantine dwd.trips discard` removes them"
    )


def test_the_advice_for_a_file_that_can_not_be_read() -> None:
    row = QuarantinedRow(None, "data/a.csv can't be read", "data/a.csv", "r1", datetime(2026, 1, 2, tzinfo=UTC))
    assert _describe_next_step("ods.o", [row]) == (
        "these files could not be read: correct them, and `runnel run` reads them again; "
        "`runnel quarantine ods.o discard` removes them"
    )
