"""`make test-conformance`: Spark's own golden SQL files, answered by DuckDB wherever Runnel chooses it.

The files come out of the tests jar of the pinned Spark. Spark builds the tables that they read; DuckDB is asked in a
lake that holds the same rows. An answer is right if names, types and rows are those of the golden file, or those that
Spark gives over the same lake: the files were written in another time zone, and over types that Iceberg lacks.
"""

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance.golden_files import golden_files
from tests.conformance.golden_jar import golden_jar
from tests.conformance.golden_queries import ABSENT, REFUSED, SAME, SAME_AS_SPARK, SPARK, Verdict, judge
from tests.conformance.golden_tables import Case, GoldenTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).parent / "RESULTS.md"
_TITLE = "## Spark's golden SQL files"
_HEADER = """\
# What came of the suites that others wrote

`make test-conformance` writes this page. It fails if DuckDB gives a wrong answer, or answers fewer queries than here.
"""
_SHARE = re.compile(r"answered by DuckDB \| (\d+)")


def main() -> int:
    """Run everything, print what came of it, and return the exit code."""
    os.environ.setdefault("RUNNEL_CDS", "ready")  # use an archive that is there, but make none
    only = os.environ.get("ONLY", "")
    with tempfile.TemporaryDirectory(prefix="runnel-conformance-") as folder:
        cases, unset = _cases(Path(folder), only)
        verdicts = list(judge(cases, _spark))
    table = _table(verdicts, unset)
    _say(table)
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    for verdict in wrong:
        _say(_shown(verdict))
    if only:
        return bool(wrong)
    answered = sum(verdict.word in (SAME, SAME_AS_SPARK) for verdict in verdicts)
    least = int(match[1]) if (match := _SHARE.search(_read())) else 0
    if wrong or answered < least:
        _say(f"failed: {len(wrong)} wrong; DuckDB answers {answered}, and {least} before")
        return 1
    RESULTS.write_text(_page(_read(), table), encoding="utf-8")
    return 0


def _cases(folder: Path, only: str) -> tuple[list[Case], Counter[str]]:
    jar = golden_jar()
    tables = GoldenTables(_spark(), jar, folder)
    cases: list[Case] = []
    unset: Counter[str] = Counter()
    for number, statements in enumerate(golden_files(jar)):
        if only in statements[0].file:
            cases += tables.cases(number, statements)
            unset.update(s.setting for s in statements if s.is_query and s.setting)
    return cases, unset


def _spark() -> "SparkSession":
    from runnel.spark.session import SparkSettings, start_spark

    conf = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "1"}
    spark = start_spark(SparkSettings(master="local[2]", conf=conf))
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _table(verdicts: Sequence[Verdict], unset: Counter[str]) -> str:
    words = Counter(verdict.word for verdict in verdicts)
    answered = words[SAME] + words[SAME_AS_SPARK]
    asked = answered + words[SPARK] + sum(verdict.wrong for verdict in verdicts)
    lines = ["| SELECTs of the golden files | |", "|---|---|", f"| answered by DuckDB | {answered} |"]
    lines += [
        f"| ... as the golden file says | {words[SAME]} |",
        f"| ... as Spark says here | {words[SAME_AS_SPARK]} |",
    ]
    lines += [f"| wrong | {sum(verdict.wrong for verdict in verdicts)} |", f"| handed to Spark | {words[SPARK]} |"]
    lines += [
        f"| share of DuckDB | {answered / max(asked, 1):.1%} |",
        f"| refused on both engines | {words[REFUSED]} |",
    ]
    absent = Counter(verdict.detail for verdict in verdicts if verdict.word == ABSENT)
    lines += [f"| not run: {reason} | {count} |" for reason, count in absent.most_common()]
    lines += [f"| not run: {reason} | {count} |" for reason, count in unset.most_common()]
    return "\n".join(lines)


def _page(before: str, table: str) -> str:
    """Return the page of results with this suite's part in place of its old one; other suites have their own."""
    first, *parts = re.split(r"^(?=## )", before or _HEADER, flags=re.MULTILINE)
    others = [part.rstrip() for part in parts if not part.startswith(_TITLE)]
    return "\n\n".join([first.rstrip(), *sorted([*others, f"{_TITLE}\n\n{table}"])]) + "\n"


def _read() -> str:
    return RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""


def _shown(verdict: Verdict) -> str:
    statement = verdict.case.statement
    golden = f"{statement.schema}\n{statement.output}"
    return f"\n{statement.name}: {verdict.word}\n{statement.sql}\nSpark: {golden[:600]}\nDuckDB: {verdict.detail[:600]}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
