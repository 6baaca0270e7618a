"""`runnel schema` and `runnel load` say what only the user can tell of a file that could be read."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.lake.odd_files import DOTS, TOTAL

Run = Callable[..., Any]

CAVEATS = {
    "dots that may separate thousands": (
        DOTS,
        ("--delimiter", ";"),
        'if the dots of `stueck` separate thousands, the file needs --decimal "," --thousands "."',
    ),
    "a text among numbers": (
        b"id,qty\n" + b"1,2\n" * 150 + b"2,five\n" + b"3,4\n" * 50,
        (),
        "`qty` is string because of 'five' (line 152): --schema \"qty long\" --on-bad drop leaves the row out",
    ),
    "texts among numbers and dates": (
        b"n,day\n" + b"1.5,2026-01-02\n" * 150 + b"2,?\nx,2026-01-02\n3,soon\n" + b"3,2026-01-02\n" * 50,
        (),
        "`n` is string because of 'x' (line 153): --schema \"n double\" --on-bad drop leaves the row out; `day` is "
        "string because of '?' (line 152) and 1 more value: --schema \"day date\" --on-bad drop leaves the rows out",
    ),
    "a text among numbers, beyond the first rows": (
        b"id,qty\n" + b"1,2\n" * 400_000 + b"2,five\n3,4\n",
        (),
        "`qty` is string because of 'five' (line 400002): --schema \"qty long\" --on-bad drop leaves the row out",
    ),
    "a total of many rows": (
        b"region,month,units\n" + b"North,2025-10,1\n" * 100_000 + b"Total,,100000\n",
        (),
        "the last line looks like a total, `Total,,100000`: "
        '--schema "month string not null" --on-bad drop leaves it out',
    ),
    "a total of many rows that makes a column text": (
        b"day,v\n" + b"2026-01-01,1\n" * 100_000 + b"Total,100000\n",
        (),
        'the last line looks like a total, `Total,100000`: --schema "day date" --on-bad drop leaves it out',
    ),
    "a total": (
        TOTAL,
        (),
        'the last line looks like a total, `Total,,3`: --schema "month string not null" --on-bad drop leaves it out',
    ),
    "a total that makes a column text": (
        b"day,v\n2026-01-01,1\n2026-01-02,2\nGesamt,3\n",
        (),
        'the last line looks like a total, `Gesamt,3`: --schema "day date" --on-bad drop leaves it out',
    ),
    "a total that no schema leaves out": (
        b"region,units\nNorth,1\nSouth,2\nGrand total,3\n",
        (),
        "the last line looks like a total, `Grand total,3`: remove it from the file",
    ),
}


@pytest.mark.parametrize(("contents", "options", "caveat"), CAVEATS.values(), ids=CAVEATS)
def test_what_only_the_user_can_tell(
    shop: Run, tmp_path: Path, contents: bytes, options: tuple[str, ...], caveat: str
) -> None:
    (tmp_path / "a.csv").write_bytes(contents)
    assert shop("schema", "a.csv", *options).err == f"{caveat}\n"
    loaded = shop("load", "ods.x", "a.csv", *options)
    undo = f"`runnel revert {loaded.out.split()[-1]}` undoes the load; then load it again with them"
    assert loaded.err == f"{caveat}: {undo}\n"


def test_the_options_that_leave_a_total_out(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(TOTAL)
    loaded = shop("load", "ods.x", "a.csv", "--schema", "month string not null", "--on-bad", "drop")
    assert loaded.err == "dropped 1 bad row\n"
    assert shop("query", "select sum(units) from ods.x", "--json").json["rows"] == [[3]]


NO_CAVEATS = {
    "weights in kilograms": "id;kg\n" + "".join(f"{n};0.{n + 100}\n" for n in range(25)),
    "few values": "id;kg\n1;1.234\n2;2.345\n",
    "whole numbers of more than three digits": DOTS.decode() + "26;1234\n",
    "ids with leading zeros": "zip\n" + "68030\n" * 200 + "05876\n",
    "many texts": "v\n" + "1\n" * 200 + "x\n" * 3,
    "a product": "product,units\nSoap,1\nCream,2\nTotal Repair,3\n",
}


@pytest.mark.parametrize("text", NO_CAVEATS.values(), ids=NO_CAVEATS)
def test_files_that_are_what_they_seem(cli: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert cli("schema", "a.csv", "--delimiter", ";" if ";" in text else ",").err == ""


def test_a_day_that_may_be_a_month(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,day\n1,03/04/2025\n")
    needs, caveat = (
        'the file seems to need --date-format "dd/MM/yyyy"',
        "if the month comes first, exchange day and month",
    )
    keywords = ', or date_format="dd/MM/yyyy" in rn.files'
    assert shop("schema", "a.csv").err == f"{needs}{keywords}; {caveat}\n"
    assert shop("load", "ods.x", "a.csv").err.startswith(f"{needs}; {caveat}: `runnel revert ")


def test_a_wrong_format_of_dates(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,day\n1,31.12.2025\n2,01.12.2025\n")
    done = shop("schema", "a.csv", "--date-format", "dd/MM/yyyy")
    assert done.err == 'the file seems to need --date-format "dd.MM.yyyy", or date_format="dd.MM.yyyy" in rn.files\n'


def test_dates_in_two_formats(cli: Run, tmp_path: Path) -> None:
    """The format that was named is right for one column; no option is right for both."""
    (tmp_path / "a.csv").write_text("day,due\n31.12.2025,12/31/2025\n")
    done = cli("schema", "a.csv", "--date-format", "dd.MM.yyyy")
    assert (done.out, done.err) == ('date_format="dd.MM.yyyy", schema="day date, due string"\n', "")


NULLS = {
    "N/A in numbers": (b"id,rate\n1,N/A\n2,1.5\n3,N/A\n", '--null "" --null "N/A"', 'null=["", "N/A"]', ""),
    "two texts": (
        b"rate,day\nN/A,NULL\n1.5,NULL\nN/A,2025-01-02\n",
        '--null "" --null "N/A" --null "NULL"',
        'null=["", "N/A", "NULL"]',
        "",
    ),
    "with thousands": (
        b'pop\n"1,234"\n-\n-\n"12,345"\n',
        '--null "" --null "-" --thousands ","',
        'null=["", "-"], thousands=","',
        "",
    ),
    "a text that has a meaning elsewhere": (
        b"country,v\nNA,1\nDE,NA\nFR,NA\n",
        '--null "" --null "NA"',
        'null=["", "NA"]',
        "; `NA` becomes null in `country`, too",
    ),
}


@pytest.mark.parametrize(("contents", "flags", "keywords", "caveat"), NULLS.values(), ids=NULLS)
def test_texts_that_seem_to_mean_null(
    shop: Run, tmp_path: Path, contents: bytes, flags: str, keywords: str, caveat: str
) -> None:
    (tmp_path / "a.csv").write_bytes(contents)
    assert shop("schema", "a.csv").err == f"the file seems to need {flags}, or {keywords} in rn.files{caveat}\n"
    done = shop("schema", "a.csv", *shlex.split(flags))
    assert done.err == ""


NO_NULLS = {"one value": "v\n1\nN/A\n2\n", "texts": "v\nx\n-\n-\n", "no other values": "v\nNULL\nNULL\n"}


@pytest.mark.parametrize("text", NO_NULLS.values(), ids=NO_NULLS)
def test_texts_that_may_mean_something(cli: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert cli("schema", "a.csv").err == ""
