"""Numbers, times and booleans as people write them, declared with the options of `rn.files`."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import runnel as rn
from runnel.declare.model.endpoints import Files
from runnel.errors import Mistake, RunnelError
from tests.connect.ingest.file_source import Ingesting

GERMAN = {"delimiter": ";", "thousands": ".", "decimal": ","}


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def _read(ods: Ingesting, kind: str, options: dict[str, Any], *texts: str, ending: str = "csv") -> list[Any]:
    origin = rn.files(f"data/*.{ending}", schema=f"v {kind}", **options)
    assert isinstance(origin, Files)
    ods.source = replace(ods.source, origin=origin)
    ods.write(f"a.{ending}", "\n".join(["v"] * (ending == "csv") + list(texts)) + "\n")
    ods.run()
    return [value for (value,) in ods.rows]


VALUES = {
    "German decimals": (
        "decimal(12,2)",
        GERMAN,
        ["1.234,56", "-1.234.567,8", "12", "1234,5"],
        ["1234.56", "-1234567.80", "12.00", "1234.50"],
    ),
    "German doubles": ("double", GERMAN, ["1.234,5", "0,5"], ["1234.5", "0.5"]),
    "German longs": ("long", GERMAN, ["1.234.567", "12"], ["1234567", "12"]),
    "English": ("decimal(12,2)", {"thousands": ","}, ['"1,234.56"', "1234.5"], ["1234.56", "1234.50"]),
    "Swiss": ("decimal(12,2)", {"thousands": "'"}, ["1'234.56"], ["1234.56"]),
    "blanks": ("long", {"thousands": " "}, ["1 234", "5\u202f678", "9\u00a0012"], ["1234", "5678", "9012"]),
    "yes and no": (
        "boolean",
        {},
        ["Y", "n", "Yes", "NO", "true", "0"],
        ["True", "False", "True", "False", "True", "False"],
    ),
}


@pytest.mark.parametrize(("kind", "options", "texts", "expected"), VALUES.values(), ids=VALUES)
def test_numbers_and_booleans(
    ods: Ingesting, kind: str, options: dict[str, Any], texts: list[str], expected: list[str]
):
    assert sorted(map(str, _read(ods, kind, options, *texts))) == sorted(expected)


BERLIN = {"timezone": "Europe/Berlin"}
US = {"timestamp_format": "M/d/yyyy h:mm a"}
TIMES = {
    "12 hours": (US, "1/2/2026 3:04 PM", utc(2026, 1, 2, 15, 4)),
    "midnight": (US, "12/31/2026 12:04 AM", utc(2026, 12, 31, 0, 4)),
    "two digits": ({"timestamp_format": "MM/dd/yyyy hh:mm:ss a"}, "01/02/2026 03:04:05 pm", utc(2026, 1, 2, 15, 4, 5)),
    "one letter": ({"timestamp_format": "d.M.yyyy H:m:s"}, "1.2.2026 5:6:7", utc(2026, 2, 1, 5, 6, 7)),
    "epoch": ({"timestamp_format": "epoch"}, "1767261600", utc(2026, 1, 1, 10)),
    "epoch with a fraction": ({"timestamp_format": "epoch"}, "1767261600.25", utc(2026, 1, 1, 10, 0, 0, 250_000)),
    "before 1970": ({"timestamp_format": "epoch"}, "-1", utc(1969, 12, 31, 23, 59, 59)),
    "epoch in milliseconds": ({"timestamp_format": "epoch_ms"}, "1767261600250", utc(2026, 1, 1, 10, 0, 0, 250_000)),
    "epoch in microseconds": ({"timestamp_format": "epoch_us"}, "1767261600250000", utc(2026, 1, 1, 10, 0, 0, 250_000)),
    "seven digits of a second": ({}, "2025-12-31T23:59:59.9999999Z", utc(2025, 12, 31, 23, 59, 59, 999_999)),
    "nine digits of a second": ({}, "1969-12-31 23:59:59.999999999", utc(1969, 12, 31, 23, 59, 59, 999_999)),
    "two digits of a year, as Spark": ({"timestamp_format": "dd.MM.yy HH:mm"}, "31.12.99 10:00", utc(2099, 12, 31, 10)),
    "two digits of a year, as strptime": (
        {"timestamp_format": "%d.%m.%y %H:%M"},
        "31.12.99 10:00",
        utc(1999, 12, 31, 10),
    ),
    "one digit of a day, as strptime": ({"timestamp_format": "%d.%m.%Y %H:%M"}, "1.2.2025 1:00", utc(2025, 2, 1, 1)),
    "local time in winter": (BERLIN, "2026-01-02 10:00", utc(2026, 1, 2, 9)),
    "local time in summer": (BERLIN, "2026-07-02T10:00:00.5", utc(2026, 7, 2, 8, 0, 0, 500_000)),
    "local midnight": (BERLIN, "2026-01-02", utc(2026, 1, 1, 23)),
    "local time that occurs twice": (BERLIN, "2025-10-26 02:30", utc(2025, 10, 26, 0, 30)),
    "local time after that": (BERLIN, "2025-10-26 03:30", utc(2025, 10, 26, 2, 30)),
    "local time that is skipped": (BERLIN, "2025-03-30 02:30", utc(2025, 3, 30, 1, 30)),
    "local time after a skipped hour": (BERLIN, "2025-03-30 04:00", utc(2025, 3, 30, 2)),
    "with a zone of its own": (BERLIN, "2026-01-02T10:00:00Z", utc(2026, 1, 2, 10)),
    "with an offset of its own": (BERLIN, "2026-01-02 10:00-05", utc(2026, 1, 2, 15)),
    "a pattern of local time": ({**US, **BERLIN}, "1/2/2026 3:04 PM", utc(2026, 1, 2, 14, 4)),
    "a pattern with an offset": (
        {"timestamp_format": "d.M.yyyy HH:mm XXX", **BERLIN},
        "1.2.2026 10:00 +00:00",
        utc(2026, 2, 1, 10),
    ),
}


@pytest.mark.parametrize(("options", "text", "expected"), TIMES.values(), ids=TIMES)
def test_times(ods: Ingesting, options: dict[str, str], text: str, expected: datetime):
    assert _read(ods, "timestamp", options, text) == [expected]


def test_a_time_without_a_zone_stays_as_it_is_in_a_column_without_zones(ods: Ingesting):
    assert _read(ods, "timestamp_ntz", BERLIN, "2026-01-02 10:00") == [datetime(2026, 1, 2, 10)]


@pytest.mark.parametrize("value", ["1767261600", '"1767261600"', "1767261600.0"])
def test_epochs_in_json(ods: Ingesting, value: str):
    rows = _read(ods, "timestamp", {"timestamp_format": "epoch"}, f'{{"v": {value}}}', ending="jsonl")
    assert rows == [utc(2026, 1, 1, 10)]


def test_fields_of_structs_are_read_without_the_options(ods: Ingesting):
    row = '{"v": {"at": "2026-01-01T10:00:00Z", "epoch": "1767261600"}}'
    options = {"timestamp_format": "epoch"}
    rows = _read(ods, "struct<at: timestamp, epoch: string>", options, row, ending="jsonl")
    assert rows == [{"at": utc(2026, 1, 1, 10), "epoch": "1767261600"}]
    with pytest.raises(RunnelError, match=r"'\{.at.:1767261600\}': not a struct<at: timestamp, epoch: string>"):
        _read(ods, "struct<at: timestamp, epoch: string>", options, '{"v": {"at": 1767261600}}', ending="jsonl")


def test_seven_digits_of_a_second_in_json(ods: Ingesting):
    rows = _read(ods, "timestamp", {}, '{"v": "2025-12-31T23:59:59.9999999Z"}', ending="jsonl")
    assert rows == [utc(2025, 12, 31, 23, 59, 59, 999_999)]


def test_an_epoch_out_of_range_is_a_bad_row(ods: Ingesting):
    ods.declare("v1", on_bad="drop")
    assert _read(ods, "timestamp", {"timestamp_format": "epoch"}, "1735689600000\n0") == [utc(1970, 1, 1)]


BAD_VALUES = {
    "a group of two digits": ("decimal(12,2)", GERMAN, "1.23,5", "'1.23,5': not a decimal(12,2)"),
    "a point without groups": ("double", GERMAN, "1.5", "'1.5': not a double"),
    "a fraction for a long": ("long", GERMAN, "1.234,5", "'1.234,5': not a long"),
    "words for an epoch": ("timestamp", {"timestamp_format": "epoch"}, "today", "'today': not a timestamp"),
    "an epoch out of range": ("timestamp", {"timestamp_format": "epoch"}, "9" * 18, "not a timestamp: out of range"),
    "milliseconds for an epoch": (
        "timestamp",
        {"timestamp_format": "epoch"},
        "1735689600000",
        "'1735689600000': not a timestamp: out of range for epoch; it looks like timestamp_format=\"epoch_ms\"",
    ),
    "microseconds for an epoch": (
        "timestamp",
        {"timestamp_format": "epoch_ms"},
        "1735689600000000",
        'not a timestamp: out of range for epoch_ms; it looks like timestamp_format="epoch_us"',
    ),
    "two digits for yyyy": ("date", {"date_format": "dd.MM.yyyy"}, "31.12.25", "'31.12.25': not a date"),
    "two digits for %Y": ("date", {"date_format": "%d.%m.%Y"}, "31.12.25", "'31.12.25': not a date"),
    "one digit for dd": ("date", {"date_format": "dd.MM.yyyy"}, "1.12.2025", "'1.12.2025': not a date"),
    "one digit for mm": ("timestamp", {"timestamp_format": "d.M.yyyy H:mm"}, "1.2.2025 1:5", "not a timestamp"),
    "ten digits of a second": ("timestamp", {}, "2025-12-31T23:59:59.9999999999Z", "not a timestamp"),
    "13 o'clock": ("timestamp", US, "1/2/2026 13:04 PM", "'1/2/2026 13:04 PM': not a timestamp"),
    "no time at all": ("timestamp", BERLIN, "2026-13-02 10:00", "not a timestamp"),
    "maybe": ("boolean", {}, "maybe", "'maybe': not a boolean"),
}


@pytest.mark.parametrize(("kind", "options", "text", "expected"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_values(ods: Ingesting, kind: str, options: dict[str, Any], text: str, expected: str):
    with pytest.raises(RunnelError) as error:
        _read(ods, kind, options, text)
    assert error.value.code == "SOURCE_BAD_ROWS"
    assert expected in error.value.what


REFUSED = {
    "a letter that is not supported": (
        {"timestamp_format": "M/d/yyyy G"},
        "`timestamp_format` can't be 'M/d/yyyy G': `G` is not supported",
        'write timestamp_format="dd/MM/yyyy HH:mm:ss" or timestamp_format="%d/%m/%Y %H:%M:%S"; there are yyyy, yy, MM,',
    ),
    "epoch for dates": ({"date_format": "epoch"}, "`date_format` can't be 'epoch': `e` is not supported", "dd/MM/yyyy"),
    "equal separators": ({"thousands": "."}, "`thousands` and `decimal` are both '.'", 'write decimal=",", or another'),
    "no separator": ({"thousands": "x"}, "`thousands` can't be 'x'", "use one of ., ,, ',  , _"),
    "no time zone": ({"timezone": "Mars"}, "`timezone` can't be 'Mars'", 'write timezone="Europe/Berlin"'),
}


@pytest.mark.parametrize(("options", "what", "fix"), REFUSED.values(), ids=REFUSED)
def test_refused_options(options: dict[str, Any], what: str, fix: str):
    with pytest.raises(Mistake) as mistake:
        rn.files("data/*.csv", schema="v long", **options)
    assert mistake.value.what == f"rn.files('data/*.csv'): {what}"
    assert fix in (mistake.value.fix or "")


def test_options_that_are_not_set_are_not_stored():
    assert rn.files("data/*.csv", schema="v long") == Files(
        "data/*.csv", "csv", rn.files("a.csv", schema="v long").schema
    )


def test_decimals_keep_their_scale(ods: Ingesting):
    assert _read(ods, "decimal(12,2)", GERMAN, "1.234,50") == [Decimal("1234.50")]
