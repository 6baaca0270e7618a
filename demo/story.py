"""`make demo`: show a flow on a versioned lake from start to end, with the commands that you would type.

All commands run in this process, one after the other, so that Spark starts once. Their output is checked: the demo
exits with 1 if a command does not print what it should.
"""

import io
import os
import shutil
import sys
import textwrap
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from data import make

import runnel as rn
from runnel.cli.main import main as runnel

ROOT = Path(__file__).resolve().parent.parent
SHOP = ROOT / ".work" / "demo" / "shop"
TOP = "select place, name, revenue from ads.top_sellers order by place limit 3"
ASIDE = "select reason, raw from quarantine.dwd_paid_orders limit 2"


def main() -> None:
    started, here = time.monotonic(), Path.cwd()
    os.environ |= {"RUNNEL_AUTHOR": "you", "COLUMNS": "80"}
    shutil.rmtree(SHOP.parent, ignore_errors=True)
    SHOP.parent.mkdir(parents=True)
    first_run()
    new_file()
    late_order()
    bad_rows()
    code_change()
    provenance()
    versions()
    bar = "-" * 72
    print(f"\n{bar}\nThe demo took {time.monotonic() - started:.0f} seconds. Try the project yourself:\n")
    command = Path(sys.executable).parent / "runnel"
    print(f"  cd {os.path.relpath(SHOP, here)} && {os.path.relpath(command, SHOP)} plan\n")
    print("  README.md            what Runnel is")
    print("  docs/flows.md        how to write a flow")
    print("  docs/testing.md      how to test one")
    print("  docs/commands.md     all commands")
    print("  make test            run all tests")


def first_run() -> None:
    chapter(
        "A project is a folder with data files, and tasks in Python and SQL",
        "The lake is in its subfolder .runnel. There is no server and no container.",
    )
    os.chdir(SHOP.parent)
    type_("init", "shop", says="made a project")
    os.chdir(SHOP)
    shutil.rmtree("data")
    make(SHOP / "data")
    show("flows/orders.py", '@rn.task(\n    "dws.seller_day"', "    )\n")
    type_("validate", says="3 tasks, 2 sources")

    chapter(
        "First run: two sources, three layers, one commit",
        "`plan` shows what would be done and why. `run` computes it with Spark, checks it, and publishes all of it. "
        "Spark starts now, which takes a while; the rest of the demo reuses it.",
    )
    type_("plan", says="3 to compute, 2 to ingest")
    type_("run", says="published commit")
    type_("query", TOP, says="Dune Outdoor")


def new_file() -> None:
    chapter(
        "One new file: only its rows, and only its days, are computed",
        "dwd.paid_orders is computed row by row, so the first two weeks are not read again. dws.seller_day is "
        "computed by day: only the days of the file. The next run has nothing to do, and makes no commit.",
    )
    shell("cp data/later/week3.csv data/orders/")
    type_("plan", says="1 new file")
    type_("run", says=("rows", "slices", "published commit"))
    type_("run", says="nothing to do: 5 skipped")


def late_order() -> None:
    chapter(
        "A late order: one day of 21 is computed again",
        "The order is of 3 January. `--verify` also computes everything in full and compares: slices and the full "
        "computation give the same rows.",
    )
    shell("cp data/later/late.csv data/orders/")
    type_("run", "--verify", says=("slices", "verified", "published commit"))
    type_("show", "main", says="dws.seller_day")


def bad_rows() -> None:
    chapter(
        "A check fails: the run publishes nothing",
        "A file has two orders twice, but dwd.paid_orders declares rn.unique(order_id). Readers see the last commit.",
    )
    shell("cp data/later/week4_twice.csv data/orders/week4.csv")
    type_("run", says="unique(order_id)", code=1)
    type_("query", "select max(day) as newest from dws.seller_day", says="2026-01-21")

    chapter(
        "Another check sets rows aside: quarantine",
        "The file is corrected. Three refunds were booked as orders: rn.check(amount > 0, on_fail=quarantine) moves "
        "them to a quarantine table, with the reason, and the run continues with the other rows.",
    )
    shell("cp data/later/week4.csv data/orders/week4.csv")
    type_("run", says="3 rows set aside")
    type_("query", ASIDE, says="amount > 0")


def code_change() -> None:
    chapter(
        "A branch with a code change",
        "Orders below 5 should not count. A run on a branch does not change main; only the changed task and the "
        "tables that depend on it are computed.",
    )
    type_("branch", "dev", says="dev")
    edit("flows/orders.py", ">= min_amount", ">= min_amount + 5")
    type_("plan", "--branch", "dev", says=("its code changed", "3 skipped"))
    type_("run", "--branch", "dev", says="published commit")
    type_("diff", "main", "dev", says="dws.seller_day")

    chapter(
        "Merge: main takes the tables of the branch without computing them again",
        "Then main has the results of the new code, and a run has nothing to do.",
    )
    type_("merge", "dev", says="merged dev into main")
    type_("run", says="nothing to do: 5 skipped")
    type_("query", TOP, says="Dune Outdoor")


def provenance() -> None:
    chapter(
        "Where does a number come from? Can it be reproduced?",
        "`why` names the inputs' versions, the code, the parameters and the checks. `replay` runs a commit's own code "
        "on its own inputs and compares: here for every commit in which a task computed something.",
    )
    type_("why", "dws.seller_day", says=("inputs", "dwd.paid_orders"))
    type_("lineage", "dws.seller_day", says="read by")
    with rn.open(SHOP) as lake:
        runs = [commit for ref in ("main", "dev") for commit in lake.log(ref) if commit.kind == "run"]
    for commit in dict.fromkeys(commit.id for commit in sorted(runs, key=lambda commit: commit.seq)):
        type_("replay", commit[:8], says="as commit")


def versions() -> None:
    chapter(
        "Everything is versioned: undo, time travel, and files",
        "A revert is one new commit; history stays. You can query any commit, tag or time.",
    )
    type_("tag", "january", says="january")
    type_("revert", "main", says="reverted")
    type_("query", "select sum(revenue) as revenue from dws.seller_day", says="revenue")
    type_("query", "select sum(revenue) as revenue from dws.seller_day", "--at", "january", says="revenue")
    type_("put", "raw.receipts", "data/receipts", says="41")
    type_("log", "--graph", says="merge")
    type_("fsck", "--deep", says="sound")


def chapter(title: str, text: str) -> None:
    print(f"\n== {title}\n{textwrap.indent(textwrap.fill(text, 76), '   ')}", flush=True)


def type_(*words: str, says: str | tuple[str, ...], code: int = 0) -> None:
    """Run a command, and end the demo if it does not print what it should."""
    shown = " ".join(f'"{word}"' if " " in word or "*" in word else word for word in words)
    typed(f"runnel {shown}")
    sys.argv = ["runnel", *words]
    out, err = CapturedOutput(sys.stdout), CapturedOutput(sys.stderr)
    sys.stdout, sys.stderr = out, err
    ended = 0
    try:
        runnel()
    except SystemExit as done:
        ended = int(done.code or 0)
    finally:
        sys.stdout, sys.stderr = out.through, err.through
        sys.stdout.flush()
    said = out.getvalue() + err.getvalue()
    wrong = [f"it exited with {ended}, not {code}"] if ended != code else []
    wrong += [
        f"it does not print {text!r}" for text in ((says,) if isinstance(says, str) else says) if text not in said
    ]
    if wrong:
        sys.exit(f"\nthe demo failed at `runnel {shown}`: {', '.join(wrong)}")


class CapturedOutput(io.StringIO):
    """Text that is shown and kept."""

    def __init__(self, through: io.TextIOBase) -> None:
        super().__init__()
        self.through = through

    def write(self, text: str) -> int:
        self.through.write(text)
        return super().write(text)

    def flush(self) -> None:
        self.through.flush()

    def isatty(self) -> bool:
        return self.through.isatty()


def typed(line: str) -> None:
    lines = textwrap.wrap(f"$ {line}", 78, subsequent_indent="    ", break_long_words=False)
    print("\n" + "\n".join(lines), flush=True)


def shell(line: str) -> None:
    """Do what `cp FROM TO` does."""
    typed(line)
    _, source, target = line.split()
    shutil.copy(source, target)


def edit(path: str, before: str, after: str) -> None:
    typed(f"edit {path}")
    print(f"- {before}\n+ {after}")
    file = Path(path)
    text = file.read_text()
    if before not in text:
        sys.exit(f"the demo failed: {path} has no {before!r}")
    file.write_text(text.replace(before, after))


def show(path: str, start: str, end: str) -> None:
    """Show a part of a file."""
    typed(f"less {path}")
    text = Path(path).read_text()
    at = text.index(start)
    print(text[at : text.index(end, at) + len(end)], end="")


if __name__ == "__main__":
    main()
