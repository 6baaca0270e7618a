"""`make demo`: the story of a versioned lake, told with the commands that you would type."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from data import make

ROOT = Path(__file__).resolve().parent.parent
SHOP = ROOT / ".work" / "demo" / "shop"
RUNNEL = Path(sys.executable).parent / "runnel"
SCHEMA = "order_id long, seller_id long, day date, status string, amount decimal(12,2)"
BY_WEEK = (
    "select date_trunc('week', day) as week, count(*) as orders, sum(amount) as revenue "
    "from ods.orders where status <> 'returned' group by 1 order by 1"
)
TOP = (
    "select s.name, s.city, sum(o.amount) as revenue from ods.orders o join ods.sellers s using (seller_id) "
    "where o.status <> 'returned' group by s.name, s.city order by revenue desc limit 3"
)


def main() -> None:
    started = time.monotonic()
    shutil.rmtree(SHOP.parent, ignore_errors=True)
    SHOP.parent.mkdir(parents=True)
    chapter("A project is a folder; its lake is inside it, in .runnel", "Nothing else runs: no server, no container.")
    run("init", "shop", at=SHOP.parent, show=False)
    make(SHOP / "data")

    chapter(
        "Load: types are checked, and a load is all or nothing",
        "Two weeks of orders become a table. A broken file changes nothing.",
    )
    run("load", "ods.orders", "data/orders_week[12].csv", "--schema", SCHEMA, "--partition", "day", "--key", "order_id")
    run("load", "ods.sellers", "data/sellers.csv", "--key", "seller_id")
    run("load", "ods.orders", "data/orders_broken.csv", fails=True)

    chapter(
        "Query: you write Spark SQL",
        "DuckDB answers it in this process, because it gives the same answer; no JVM starts.",
    )
    run("query", BY_WEEK)

    chapter(
        "Branch: work apart, at no cost",
        "A branch copies rows in the catalog, not data. Here someone corrects the sellers.",
    )
    run("branch", "correct-sellers")
    run("load", "ods.sellers", "data/sellers_corrected.csv", "--replace", "--branch", "correct-sellers")
    run("diff", "main", "correct-sellers", "ods.sellers", "--rows")

    chapter(
        "Meanwhile main moves on, and the merge still fits",
        "Only the branch changed the sellers, only main changed the orders.",
    )
    run("load", "ods.orders", "data/orders_week3.csv")
    run("merge", "correct-sellers")
    run("query", TOP)
    run("tag", "january-report")

    chapter(
        "A bad load, undone",
        "Someone loads amounts in cents as if they were whole. Revert is one new commit; history stays.",
    )
    run("load", "ods.orders", "data/orders_wrong_currency.csv", "-m", "orders of week 4, in the wrong currency")
    run("query", BY_WEEK)
    run("revert", "main")
    run("query", BY_WEEK)

    chapter(
        "Time travel",
        "Any commit, tag or time can be asked: here the moment of the mistake, and the report that was tagged.",
    )
    run("query", "select max(amount) as largest, count(*) as orders from ods.orders", "--at", "main~1")
    run("query", "select max(amount) as largest, count(*) as orders from ods.orders", "--at", "january-report")

    chapter(
        "Files are versioned with the tables",
        "Receipts, images, PDFs: small ones inline, large ones stored once by checksum.",
    )
    run("put", "raw.receipts", "data/receipts")
    run("ls", "raw.receipts", "2026-01/*.bin")

    chapter("The whole history", "Every commit covers the whole lake.")
    run("log", "--graph")

    chapter(
        "The same question, by Spark",
        "Large or unusual questions go to Spark, at the same commit, with the same answer. Its JVM starts now.",
    )
    run("query", BY_WEEK, "--engine", "spark")

    chapter("And is all of it sound?", "fsck reads every retained commit.")
    run("fsck", "--deep")

    bar = "-" * 72
    print(f"\n{bar}\nThat was {time.monotonic() - started:.0f} seconds. The lake is yours to play with:\n")
    print(f"  cd {os.path.relpath(SHOP)} && {os.path.relpath(RUNNEL, SHOP)} tables\n")
    print("  README.md                 what Runnel is")
    print("  docs/commands.md          everything that you can type")
    print("  docs/reading-the-lake.md  the same tables from plain Spark and PyIceberg")
    print("  make test                 prove it")


def chapter(title: str, text: str) -> None:
    print(f"\n== {title}\n{textwrap.indent(textwrap.fill(text, 76), '   ')}", flush=True)


def run(*words: str, at: Path | None = None, fails: bool = False, show: bool = True) -> None:
    if show or at is not None:
        shown = " ".join(f'"{word}"' if " " in word or "*" in word or "[" in word else word for word in words)
        lines = textwrap.wrap(f"$ runnel {shown}", 78, subsequent_indent="    ", break_long_words=False)
        print("\n" + "\n".join(lines), flush=True)
    environment = {**os.environ, "RUNNEL_AUTHOR": "you", "COLUMNS": "80"}
    done = subprocess.run(
        [str(RUNNEL), *words], cwd=at or SHOP, env=environment, check=False, stdout=None if show else subprocess.DEVNULL
    )
    if (done.returncode != 0) is not fails:
        sys.exit(f"the story broke at: runnel {' '.join(words)}")


if __name__ == "__main__":
    main()
