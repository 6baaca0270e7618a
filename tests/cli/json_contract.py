"""Run every command with `--json` on the shop project, one after the other, and write down what scripts can rely on.

`python -m tests.cli.json_contract FILE` writes the documents; what differs from run to run is replaced: ids,
times, durations, sizes of files, and text that is written for people.
"""

import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from runnel.cli.main import main as runnel

REVENUE = "select seller_id, day, revenue from dws.seller_day order by 1, 2 limit 3"
# Words of `runnel`, each with `--json`; RUN is the newest run, `cp` brings another file. Their order matters.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("validate",),
    ("plan",),
    ("run",),
    ("run",),
    ("tables",),
    ("table", "dws.seller_day"),
    ("query", REVENUE),
    ("query", "select * from dws.nothing"),
    ("query", "selct 1"),
    ("branch", "dev"),
    ("branch",),
    ("load", "ref.cities", "data/sellers.csv", "--branch", "dev"),
    ("diff", "main", "dev"),
    ("diff", "main", "dev", "ref.cities", "--rows"),
    ("merge", "dev"),
    ("tag", "v1"),
    ("tag",),
    ("put", "docs.notes", "runnel.toml"),
    ("ls", "docs.notes"),
    ("get", "docs.notes", "-o", "out"),
    ("plan", "-s", "+dws.*"),
    ("cp", "data/later/2026-01-03.csv", "data/orders/"),
    ("plan",),
    ("run", "--verify"),
    ("run", "--full-refresh", "-s", "dws.seller_day"),
    ("log",),
    ("log", "dws.seller_day"),
    ("show", "main"),
    ("show", "nowhere"),
    ("why", "dws.seller_day"),
    ("why", "dws.seller_day", "--row", "seller_id = 10"),
    ("why", "ods.orders", "--row", "order_id = 1"),
    ("lineage", "dws.seller_day"),
    ("runs",),
    ("runs", "RUN"),
    ("runs", "nothing"),
    ("replay", "main"),
    ("revert", "main"),
    ("quarantine", "ods.orders"),
    ("sinks",),
    ("schedules",),
    ("status",),
    ("alarms",),
    ("alarms", "mute", "late", "--for", "2 hours"),
    ("alarms", "unmute", "late"),
    ("alarms", "ack", "nothing"),
    ("backfill", "-s", "dws.seller_day", "--from", "2026-01-01", "--to", "2026-01-02", "--dry-run"),
    ("backfills",),
    ("rewind", "ods.orders", "--to", "main~1"),
    ("stream", "reset", "dws.seller_day"),
    ("token", "create", "reader", "--scope", "read", "--tables", "dws.*", "--branch", "main"),
    ("token", "list"),
    ("token", "rotate", "reader", "--grace", "1h"),
    ("token", "revoke", "reader"),
    ("cancel", "nothing"),
    ("retry", "nothing"),
    ("compact",),
    ("erase", "ref.cities", "--where", "city = 'Nowhere'", "--yes"),
    ("fsck",),
    ("gc", "--dry-run"),
    ("branch", "dev", "-d"),
    ("merge", "nowhere"),
    ("rm", "docs.notes", "runnel.tml"),
    ("rm", "docs.notes", "runnel.toml", "--dry-run"),
    ("rm", "docs.notes", "runnel.toml"),
)
_NAMED = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\b\d{8}t\d{6}\w*(-\w+)*", re.I), "<run>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b"), "<id>"),
)
_FOR_PEOPLE = {
    "reason",
    "what",
    "fix",
    "message",
    "note",
    "notes",
    "help",
    "detail",
    "warnings",
    "why",
    "text",
    "secret",
}
_VARIES = re.compile(
    r"(seconds|bytes|size|_ms|pid|token|host|worker|python|version|packages|spent|timeline|memory|spark|waits)"
)


def record(folder: Path) -> list[dict[str, Any]]:
    """Run all commands in a new project below `folder`; return what each answered."""
    os.environ |= {"RUNNEL_AUTHOR": "you", "COLUMNS": "80"}
    os.chdir(folder)
    _answer("init", "shop")
    os.chdir(folder / "shop")
    answers = []
    for words in COMMANDS:
        if words[0] == "cp":
            shutil.copy(*words[1:])
            continue
        newest = json.loads(_answer("runs", "--json")[1])[0]["run"] if "RUN" in words else ""
        code, text = _answer(*(newest if word == "RUN" else word for word in words), "--json")
        answers.append({"command": " ".join(words), "code": code, "answer": _steady(json.loads(text), folder)})
    return answers


def _answer(*words: str) -> tuple[int, str]:
    before, sys.argv = sys.argv, ["runnel", *words]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        try:
            runnel()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.argv = before
    return code, out.getvalue()


def _steady(value: Any, folder: Path, key: str = "") -> Any:
    """Return a document with everything replaced that is another in the next run."""
    if isinstance(value, dict):
        if _VARIES.search(key):
            return "<dict>"
        return {_text(name, folder): _steady(item, folder, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_steady(item, folder, key) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if key in _FOR_PEOPLE and isinstance(value, str):
        return "<text>"
    if isinstance(value, float) or _VARIES.search(key):
        return f"<{type(value).__name__}>"
    return _text(value, folder) if isinstance(value, str) else value


def _text(value: str, folder: Path) -> str:
    value = value.replace(str(folder), "<folder>")
    for pattern, name in _NAMED:
        value = pattern.sub(name, value)
    return value


def main() -> None:
    target = Path(sys.argv[1]).resolve()
    folder = Path(tempfile.mkdtemp()).resolve()
    try:
        answers = record(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    target.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
