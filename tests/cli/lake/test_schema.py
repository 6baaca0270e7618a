"""`runnel schema` and `runnel load` read files as people have them; errors name the option that helps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.lake.odd_files import DOTS, TOTAL

Run = Callable[..., Any]

SCHEMAS = {
    "CSV": ("a.csv", b"id,day,v\n1,2026-01-02,2.5\n", (), "id long, day date, v double"),
    "odd names": ("a.csv", b"order id,2nd\n1,x\n", (), "`order id` long, `2nd` string"),
    "semicolons": ("a.csv", b"id;v\n1;x\n", ("--delimiter", ";"), "id long, v string"),
    "tabs, as typed": ("a.csv", b"id\tv\n1\tx\n", ("--delimiter", "\\t"), "id long, v string"),
    "cp1252": ("a.csv", "id,größe\n1,2\n".encode("cp1252"), ("--encoding", "cp1252"), "id long, `größe` long"),
    "UTF-16": ("a.csv", "id,v\n1,2\n".encode("utf-16"), ("--encoding", "utf-16"), "id long, v long"),
    "German decimals": ("a.csv", b"id;v\n1;2,50\n", ("--delimiter", ";", "--decimal", ","), "id long, v double"),
    "German dates": ("a.csv", b"day\n31.12.2026\n", ("--date-format", "dd.MM.yyyy"), "day date"),
    "thousands": (
        "a.csv",
        b"n;v\n1.234;1.234,5\n",
        ("--delimiter", ";", "--decimal", ",", "--thousands", "."),
        "n long, v double",
    ),
    "12 hours": ("a.csv", b"at\n1/2/2026 3:04 PM\n", ("--timestamp-format", "M/d/yyyy h:mm a"), "at timestamp"),
    "delimiters at the end of rows": ("a.csv", b"id;v\n1;x1;\n2;x2;\n", ("--delimiter", ";"), "id long, v string"),
    "local times": ("a.csv", b"at\n2026-01-02 10:00\n", ("--timezone", "Europe/Berlin"), "at timestamp"),
    "epoch": ("a.csv", b"at\n1767261600\n", ("--timestamp-format", "epoch"), "at long"),
    "lines before the header": ("a.csv", b"report\n\nid,v\n1,2\n", ("--skip", "2"), "id long, v long"),
    "blanks": ("a.csv", b"id , v\n 1, 2 \n", ("--trim",), "id long, v long"),
    "nulls and quotes": (
        "a.csv",
        b"id,v\n1,NA\n,'x,y'\n",
        ("--null", "", "--null", "NA", "--quote", "'", "--no-multiline"),
        "id long, v string",
    ),
    "a format that the name does not show": ("a.dat", b"v\n1\nNA\n", ("--format", "csv", "--null", "NA"), "v long"),
    "JSON lines": ("a.jsonl", b'{"id": 1, "wind": {"dir": "n", "km/h": [1.5]}}\n', (), None),
}


KEYWORDS = {
    ("--delimiter", ";"): ['delimiter=";"'],
    ("--delimiter", "\\t"): ['delimiter="\\t"'],
    ("--encoding", "cp1252"): ['encoding="cp1252"'],
    ("--encoding", "utf-16"): ['encoding="utf-16"'],
    ("--delimiter", ";", "--decimal", ","): ['delimiter=";"', 'decimal=","'],
    ("--date-format", "dd.MM.yyyy"): ['date_format="dd.MM.yyyy"'],
    ("--delimiter", ";", "--decimal", ",", "--thousands", "."): ['delimiter=";"', 'decimal=","', 'thousands="."'],
    ("--timestamp-format", "M/d/yyyy h:mm a"): ['timestamp_format="M/d/yyyy h:mm a"'],
    ("--timezone", "Europe/Berlin"): ['timezone="Europe/Berlin"'],
    ("--timestamp-format", "epoch"): ['timestamp_format="epoch"'],
    ("--skip", "2"): ["skip=2"],
    ("--trim",): ["trim=True"],
    ("--null", "", "--null", "NA", "--quote", "'", "--no-multiline"): [
        'null=["", "NA"]',
        'quote="\'"',
        "multiline=False",
    ],
    ("--format", "csv", "--null", "NA"): ['format="csv"', 'null="NA"'],
}


@pytest.mark.parametrize(("name", "contents", "options", "expected"), SCHEMAS.values(), ids=SCHEMAS)
def test_schema(cli: Run, tmp_path: Path, name: str, contents: bytes, options: tuple[str, ...], expected: str) -> None:
    (tmp_path / name).write_bytes(contents)
    expected = expected or "id long, wind struct<dir: string, `km/h`: array<double>>"
    done = cli("schema", name, *options)
    keywords = ", ".join([*KEYWORDS.get(options, ()), f'schema="{expected}"'])
    assert (done.out, done.err) == (f"{keywords}\n", "")
    answer = cli("schema", name, *options, "--json").json
    assert (answer["schema"], answer["files"], answer["bad"]) == (expected, 1, 0)


ERRORS = {
    "semicolons": (
        b"id;v\n1;x\n",
        (),
        'LOAD_CSV: a.csv has one column, `id;v`: its values seem to be separated by ";"\n  at a.csv:1\n'
        '  fix: name the delimiter: --delimiter ";"; if it is one column, --delimiter ","\n',
    ),
    "German numbers and dates in cp1252": (
        "id;größe;day\n1;1.234,56;31.12.2026\n2;12,00;\n".encode("cp1252"),
        (),
        'fix: add --encoding cp1252 --delimiter ";" --decimal "," --thousands "." --date-format "dd.MM.yyyy"\n',
    ),
    "German numbers in UTF-16": (
        "id;v\n1;2,5\n".encode("utf-16"),
        (),
        'fix: add --encoding utf-16 --delimiter ";" --decimal ","\n',
    ),
    "tabs": (b"id\tv\n1\tx\n", (), 'fix: name the delimiter: --delimiter "\\t"; if'),
    "pipes and commas in values": (b"id|v\n1|2,5\n", (), 'fix: add --delimiter "|" --decimal ","\n'),
    "title": (b"Report\nid,v\n1,2\n2,3\n", (), "fix: add --skip 1\n"),
    "title that ends in another way": (b"Report\nid,v\r\n1,2\r\n2,3\r\n", (), "fix: add --skip 1\n"),
    "Excel's line": (b"sep=;\nid;v\n1;2\n", (), 'fix: add --delimiter ";" --skip 1\n'),
    "most rows are bad": (
        b"id,v\n1\n2\n3,4\n",
        (),
        "LOAD_BAD_ROWS: 2 rows of a.csv can't be loaded\n    a.csv, line 2: expected 2 columns, found 1\n",
    ),
    "semicolons in cp1252": (
        "id;größe\n1;2\n".encode("cp1252"),
        (),
        '`id;größe`: its values seem to be separated by ";"\n  at a.csv:1\n  fix: name the delimiter: --delimiter ";" '
        "and, since it is not UTF-8, the encoding: --encoding cp1252;",
    ),
    "names in cp1252": (
        "id,größe\n1,2\n".encode("cp1252"),
        (),
        "LOAD_ENCODING: a.csv, line 1: the names of its columns are not UTF-8\n  at a.csv:1\n"
        "  fix: name the encoding: --encoding cp1252\n",
    ),
    "UTF-16": (
        "id,v\n1,2\n".encode("utf-16"),
        (),
        "LOAD_ENCODING: a.csv is not UTF-8: its bytes look like utf-16\n  at a.csv:1\n"
        "  fix: name the encoding: --encoding utf-16\n",
    ),
    "UTF-16 with tabs": (
        "id\tv\n1\t2\n".encode("utf-16"),
        (),
        'fix: name the encoding: --encoding utf-16 and the delimiter: --delimiter "\\t"\n',
    ),
    "values in cp1252": (
        "id,stadt\n1,Köln\n".encode("cp1252"),
        (),
        "LOAD_ENCODING: a.csv, line 2: byte 0xf6 at position 12 is not UTF-8\n  at a.csv:2\n"
        "  fix: name the encoding: --encoding cp1252\n",
    ),
    "UTF-16 without a mark": ("id,v\n1,2\n".encode("utf-16-le"), (), "fix: name the encoding: --encoding utf-16-le\n"),
    "names in cp1251": (
        "город,страна\nМосква,Россия\n".encode("cp1251"),
        (),
        "fix: name the encoding, such as --encoding cp1251 (Cyrillic), gbk (Chinese) or shift_jis (Japanese)\n",
    ),
    "decimal": (b"id\n1\n", ("--decimal", ";"), "LOAD_OPTION: runnel schema: --decimal can't be ';'"),
    "time zone": (
        b"id\n1\n",
        ("--timezone", "Mars"),
        "LOAD_OPTION: runnel schema: --timezone can't be 'Mars'\n  fix: write --timezone \"Europe/Berlin\"\n",
    ),
    "skip": (b"id\n1\n", ("--skip", "-1"), "--skip must be a whole number, 0 or more, not '-1'"),
}


@pytest.mark.parametrize(("contents", "options", "expected"), ERRORS.values(), ids=ERRORS)
def test_errors_name_the_option(cli: Run, tmp_path: Path, contents: bytes, options: tuple[str, ...], expected: str):
    (tmp_path / "a.csv").write_bytes(contents)
    done = cli("schema", "a.csv", *options)
    assert done.code == 2
    assert expected in done.err


def test_one_column_that_looks_like_several(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;v\n1;x\n")
    assert cli("schema", "a.csv", "--delimiter", ",").out == 'delimiter=",", schema="`id;v` string"\n'


def test_bad_rows_do_not_count(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,2\n3\n")
    done = cli("schema", "a.csv")
    assert (done.out, done.err) == ('schema="id long, v long"\n', "1 bad row did not count\n")


def test_a_first_line_of_data_is_a_row(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x,2025-01-01\n2,y,2025-01-02\n")
    done = cli("schema", "a.csv")
    assert done.out == 'header=False, schema="c1 long, c2 string, c3 date"\n'
    assert done.err == "the first line seems to be data: with --no-header, or header=False, it is a row\n"
    assert cli("schema", "a.csv", "--no-header").out == 'header=False, schema="c1 long, c2 string, c3 date"\n'
    assert cli("schema", "a.csv", "--json").json["lacks_header"] is True


def test_utf_16_with_tabs_in_a_text_file(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("id\tort\r\n1\tKöln\r\n".encode("utf-16"))
    flags = ("--encoding", "utf-16", "--format", "csv", "--delimiter", "\\t")
    for command in (("schema",), ("load", "ods.x")):
        done = shop(*command, "a.txt")
        assert done.code == 2
        assert 'fix: add --encoding utf-16 --format csv --delimiter "\\t"\n' in done.err
    options = 'encoding="utf-16", format="csv", delimiter="\\t"'
    assert shop("schema", "a.txt", *flags).out == f'{options}, schema="id long, ort string"\n'


def test_utf_16_lines_in_a_text_file(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes("Köln\nBonn\n".encode("utf-16"))
    assert "fix: name the encoding: --encoding utf-16\n" in cli("schema", "a.log").err


def test_a_column_that_all_files_lack(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    types = ("--schema", "id long, v double")
    done = shop("load", "ods.x", "a.csv", *types)
    assert "LOAD_COLUMN_MISSING: a.csv lacks `v`" in done.err
    assert "fix: add the column, or correct its name; if files may lack it, --missing-columns null\n" in done.err
    assert shop("load", "ods.x", "a.csv", *types, "--missing-columns", "null").code == 0
    assert shop("query", "select * from ods.x", "--json").json["rows"] == [[1, None]]


def test_bad_rows_and_what_only_the_user_can_tell(shop: Run, tmp_path: Path) -> None:
    """One correction is enough for both."""
    (tmp_path / "a.csv").write_text("id,qty\n" + "1,2\n" * 150 + "2,five\n3\n")
    done = shop("load", "ods.x", "a.csv")
    assert done.err.endswith(
        "fix: correct them, or load the good rows only: --on-bad drop; "
        "`qty` is string because of 'five' (line 152): --schema \"qty long\" --on-bad drop leaves the row out\n"
    )
    assert shop("load", "ods.x", "a.csv", "--schema", "qty long", "--on-bad", "drop").err == "dropped 2 bad rows\n"


def test_load_takes_the_options_of_files(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "de.csv").write_text("Bericht\nid ; betrag; tag ; um\n1 ; 1234,50;31.12.2026;31.12.2026 23:59\n")
    formats = ("--date-format", "dd.MM.yyyy", "--timestamp-format", "dd.MM.yyyy HH:mm", "--decimal", ",")
    types = "id long, betrag decimal(12,2), tag date, um timestamp"
    done = shop("load", "ods.de", "de.csv", "--skip", "1", "--trim", "--delimiter", ";", *formats, "--schema", types)
    assert done.code == 0, done.err
    rows = shop("query", "select id, betrag, tag, um from ods.de", "--json").json["rows"]
    assert [str(value) for value in rows[0]] == ["1", "1234.50", "2026-12-31", "2026-12-31T23:59:00+00:00"]


LOADS = {
    "thousands": (
        "v;n\n1.234,56;1.234\n",
        ("--delimiter", ";", "--decimal", ",", "--thousands", "."),
        "v decimal(12,2), n long",
        [["1234.56", 1234]],
    ),
    "12 hours, local times": (
        "at\n7/2/2026 3:04 PM\n",
        ("--timestamp-format", "M/d/yyyy h:mm a", "--timezone", "Europe/Berlin"),
        "at timestamp",
        [["2026-07-02T13:04:00+00:00"]],
    ),
    "epoch": ("at\n1767261600\n", ("--timestamp-format", "epoch"), "at timestamp", [["2026-01-01T10:00:00+00:00"]]),
    "yes and no": ("paid\nY\nno\n", (), "paid boolean", [[True], [False]]),
}


@pytest.mark.parametrize(("text", "options", "types", "rows"), LOADS.values(), ids=LOADS)
def test_load_reads_numbers_times_and_booleans_as_people_write_them(
    shop: Run, tmp_path: Path, text: str, options: tuple[str, ...], types: str, rows: list[list[object]]
) -> None:
    (tmp_path / "a.csv").write_text(text)
    done = shop("load", "ods.x", "a.csv", "--schema", types, *options)
    assert done.code == 0, done.err
    assert shop("query", "select * from ods.x", "--json").json["rows"] == rows


def test_load_of_csv_that_is_said_to_have_no_line_ends_in_values(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,v\n1,a\n2,"b\nc"\n')
    done = shop("load", "ods.x", "a.csv", "--no-multiline")
    assert "LOAD_CSV_MULTILINE: a.csv, line 3: a value contains a line end" in done.err
    assert "--no-multiline off the command: the file is then read as a whole" in done.err
    assert shop("load", "ods.x", "a.csv").code == 0
    (tmp_path / "b.csv").write_text("id,v\n3,d\n")
    assert shop("load", "ods.x", "b.csv", "--no-multiline").code == 0


@pytest.mark.parametrize("name", ["my data.csv", "a.csv"])  # the second one could be a table, too
def test_load_of_a_file_that_stands_where_the_table_belongs(shop: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("id\n1\n")
    done = shop("load", name, "ods.x")
    assert done.code == 2
    quoted = f"'{name}'" if " " in name else name
    assert done.err == (
        f"NAME_TABLE: '{name}' is a file, not a table name: the table comes first, then its files\n"
        f"  fix: runnel load ods.x {quoted}\n"
    )


def test_load_refuses_an_option_of_another_format(shop: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    done = shop("load", "ods.x", "a.jsonl", "--skip", "1")
    assert done.code == 2
    assert "LOAD_OPTION: runnel load: --skip applies only to CSV, but this is JSON lines" in done.err


SOURCES = {
    "their own file": (
        b"id,day\n1,2026-01-02\n",
        "",
        'add schema="id long, day date" (from the first rows of data/a.csv)',
    ),
    "with what is declared": (
        b"id;v\n1;2,5\n",
        ', delimiter=";", decimal=","',
        'add schema="id long, v double" (from the first rows of data/a.csv)',
    ),
    "with what is missing, too": (
        "id;größe\n1;2\n".encode("cp1252"),
        "",
        'add encoding="cp1252", delimiter=";", schema="id long, `größe` long" (from the first rows of data/a.csv)',
    ),
    "German numbers and dates": (
        b"id;betrag;tag;ort\n1;1.234,50;31.12.2026;Bonn\n",
        "",
        'add delimiter=";", decimal=",", thousands=".", date_format="dd.MM.yyyy", '
        'schema="id long, betrag double, tag date, ort string" (from the first rows of data/a.csv)',
    ),
    "US numbers and times below a title": (
        b'Report\nid,units,at\n1,"12,000",3/4/2025 12:05 AM\n2,5,3/14/2025 1:05 PM\n',
        "",
        'add skip=1, thousands=",", timestamp_format="M/d/yyyy h:mm a", schema="id long, units long, at timestamp" (',
    ),
    "US dates and times": (
        b"id,day,at\n1,1/1/2025,1/1/2025 1:00 PM\n2,2/3/2025,2/13/2025 2:00 AM\n",
        "",
        'add date_format="M/d/yyyy", timestamp_format="M/d/yyyy h:mm a", schema="id long, day date, at timestamp" ('
        "from the first rows of data/a.csv)",
    ),
    "German dates and times": (
        b"id;tag;zeit\n1;01.02.2025;01.02.2025 13:00\n",
        "",
        'add delimiter=";", date_format="dd.MM.yyyy", timestamp_format="dd.MM.yyyy HH:mm", '
        'schema="id long, tag date, zeit timestamp" (',
    ),
    "dates that say the order of day and month, and times that don't": (
        b"id,day,at\n1,13/02/2025,01/02/2025 10:00\n",
        "",
        'add date_format="dd/MM/yyyy", timestamp_format="dd/MM/yyyy HH:mm", schema="id long, day date, at timestamp" ('
        "from the first rows of data/a.csv)",
    ),
    "a day that may be a month": (
        b"id,day\n1,03/04/2025\n",
        "",
        'add date_format="dd/MM/yyyy", schema="id long, day date" (from the first rows of data/a.csv; '
        "if the month comes first, exchange day and month)",
    ),
    "UTF-16 with tabs": (
        "id\tname\r\n1\tÖ\r\n2\tÄ\r\n3\tx\r\n".encode("utf-16"),
        "",
        'add encoding="utf-16", delimiter="\\t", schema="id long, name string" (from the first rows of data/a.csv)',
    ),
    "a column without a name": (
        b"id,v,\n1,2,\n",
        "",
        "fix: name every column in the header (data/a.csv can't be loaded: its column 3 has no name); "
        "then `runnel schema FILE` prints the schema of a file",
    ),
    "two columns of one name": (
        b"id,v,v\n1,2,3\n",
        "",
        "fix: rename one of them (data/a.csv can't be loaded: `v` and `v` are the same column: case does not count); ",
    ),
    "mixed line ends": (
        b"id,v\n1,2\r\n3,4\n5,6\r\n",
        "",
        "fix: make all line endings the same (data/a.csv, line 2: it ends with '\\r\\n', the lines before with '\\n')",
    ),
    "an encoding that only the user knows": (
        "город,страна\nМосква,Россия\n".encode("cp1251"),
        "",
        'fix: name the encoding, such as encoding="cp1251" (Cyrillic), gbk (Chinese) or shift_jis (Japanese) (',
    ),
    "dots that may separate thousands": (
        DOTS,
        ', delimiter=";"',
        'add schema="id long, stueck double" (from the first rows of data/a.csv; if the dots of `stueck` separate '
        'thousands, add decimal=",", thousands="." to rn.files)',
    ),
    "a total that can be read": (
        TOTAL,
        "",
        'add schema="region string, month string not null, units long" (from the first rows of data/a.csv; '
        'its last line seems to be a total: add on_bad="drop" to rn.source)',
    ),
    "a total that no schema leaves out": (
        b"region,units\nNorth,1\nSouth,2\nSum:,3\n",
        "",
        'schema="region string, units long" (from the first rows of data/a.csv; its last line seems to be a total, '
        "`Sum:,3`: remove it)",
    ),
    "no header": (
        b"1,Station 1,48.0000,false,2025-01-01\n2,Station 2,48.1000,true,2025-01-02\n",
        "",
        'add header=False, schema="c1 long, c2 string, c3 double, c4 boolean, c5 date" (from the first rows of',
    ),
    "years as names": (b"country,2020,2021\nDE,1,2\n", "", 'add schema="country string, `2020` long, `2021` long" ('),
    "Excel's line": (b"sep=;\nid;v\n1;2\n", "", 'add delimiter=";", skip=1, schema="id long, v long" ('),
    "an empty file": (b"", "", 'rn.files("data/*.csv", schema="order_id long, day date, amount decimal(12,2)"); '),
    "a file that is no CSV": (b"\x00\x01\xff", "", "`runnel schema FILE` prints the schema of a file"),
}


@pytest.mark.parametrize(("contents", "options", "expected"), SOURCES.values(), ids=SOURCES)
def test_a_source_without_a_schema(cli: Run, tmp_path: Path, contents: bytes, options: str, expected: str) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_bytes(contents)
    (tmp_path / "flows" / "a.py").write_text(
        f'import runnel as rn\nrn.source("ods.x", rn.files("data/*.csv"{options}))\n'
    )
    done = cli("validate")
    assert done.code == 2
    assert "DECLARE_SCHEMA_MISSING: source `ods.x` reads CSV" in done.err
    assert expected in done.err


def test_only_the_first_rows_of_a_large_file_are_read(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "a.py").write_text('import runnel as rn\nrn.source("ods.x", rn.files("a.csv"))\n')
    (tmp_path / "a.csv").write_text("id,v\n" + "1,2\n" * 400_000 + "x,y\n")
    assert 'add schema="id long, v long" (from the first rows of a.csv)' in cli("validate").err


DECLARED = {
    "JSON with its records inside": (
        "a.json",
        b'{"status": "ok", "data": {"items": [{"sku": "A"}, {"sku": "B"}]}}',
        'add records="data.items", schema="sku string" (from the first rows of a.json; '
        "without records, the top level has the rows)",
    ),
    "JSON that is one record": (
        "a.json",
        b'{"id": 1, "tags": ["x", "y"]}',
        'add schema="id long, tags array<string>" (',
    ),
    "XML with its rows inside, which names its encoding": (
        "a.xml",
        '<?xml version="1.0" encoding="ISO-8859-1"?><e><x/><os>'
        '<o id="7"><city>Köln</city></o><o id="8"/></os></e>'.encode("latin-1"),
        'add row_tag="o", schema="id string, city string" (from the first rows of a.xml; '
        "without row_tag, the top level has the rows)",
    ),
    "no file yet": (
        None,
        b"",
        'fix: add may_be_empty=True, schema="order_id long, day date, amount decimal(12,2)" with your columns '
        "(no file matches a.csv yet; is it right?)",
    ),
}


@pytest.mark.parametrize(("name", "contents", "expected"), DECLARED.values(), ids=DECLARED)
def test_the_options_that_are_missing(
    cli: Run, tmp_path: Path, name: str | None, contents: bytes, expected: str
) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows").mkdir()
    if name is not None:
        (tmp_path / name).write_bytes(contents)
    (tmp_path / "flows" / "a.py").write_text(
        f'import runnel as rn\nrn.source("ods.x", rn.files("{name or "a.csv"}"))\n'
    )
    assert expected in cli("validate").err


SEEMS = {
    "US times": (
        "a.csv",
        b"id,at\n1,1/2/2026 3:04 PM\n",
        '--timestamp-format "M/d/yyyy h:mm a"',
        'timestamp_format="M/d/yyyy h:mm a"',
    ),
    "records": ("a.json", b'{"data": {"items": [{"a": 1}, {"a": 2}]}}', "--records data.items", 'records="data.items"'),
    "rows": ("a.xml", b"<e><os><o><a>1</a></o><o/></os></e>", "--row-tag o", 'row_tag="o"'),
}


@pytest.mark.parametrize(("name", "contents", "flags", "keywords"), SEEMS.values(), ids=SEEMS)
def test_a_file_that_can_be_read_in_a_better_way(
    cli: Run, tmp_path: Path, name: str, contents: bytes, flags: str, keywords: str
) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / name).write_bytes(contents)
    assert cli("schema", name).err == f"the file seems to need {flags}, or {keywords} in rn.files\n"
    loaded = cli("load", "ods.x", name)
    commit = loaded.out.split()[-1]
    assert loaded.err == (
        f"the file seems to need {flags}: `runnel revert {commit}` undoes the load; then load it again with them\n"
    )


def test_json_lines_are_not_said_to_need_options_of_csv(shop: Run, tmp_path: Path) -> None:
    """Numbers as text stay text, since JSON takes neither --decimal nor --thousands."""
    (tmp_path / "a.jsonl").write_text('{"id": 1, "price": "1,234.50"}\n{"id": 2, "price": "3,234.50"}\n')
    done = shop("schema", "a.jsonl")
    assert (done.out, done.err) == ('schema="id long, price string"\n', "")
    assert shop("load", "ods.x", "a.jsonl").err == ""


def test_a_wrong_row_tag(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<e><order/><order/></e>")
    done = cli("schema", "a.xml", "--row-tag", "Order")
    assert done.err.endswith("fix: name the element of a row: --row-tag order\n")
