"""Files of orders of any size, in CSV, JSON lines or Parquet: written once by DuckDB, and linked under more names."""

import os
from pathlib import Path

import duckdb

SCHEMA = "id long, seller_id int, day date, amount decimal(12,2), name string, at timestamp"
ANSWER = (
    "select count(*) as n, sum(id) as ids, sum(amount) as amount, count(distinct seller_id, day) as groups, "
    "max(length(name)) as longest from {catalog}.ods.orders"
)
_ROWS = """
SELECT i AS id, (i % 1000)::INTEGER AS seller_id, DATE '2026-01-01' + (i % 28)::INTEGER AS day,
    (i % 100000 / 100.0)::DECIMAL(12, 2) AS amount, 'customer, ' || md5(i::VARCHAR) AS name, {at} AS at
FROM range({first}, {last}) AS numbers(i)
"""
_TIMES = "TIMESTAMPTZ '2026-01-01 10:00:00Z' + to_seconds(i % 60)"
_TIME_TEXTS = "strftime(TIMESTAMP '2026-01-01 10:00:00' + to_seconds(i % 60), '%Y-%m-%dT%H:%M:%SZ')"
_OPTIONS = {"csv": "FORMAT csv, HEADER", "jsonl": "FORMAT json", "parquet": "FORMAT parquet, ROW_GROUP_SIZE 200000"}
_ROW_BYTES = {"csv": 100, "jsonl": 170, "parquet": 30}


def write_files(folder: Path, ending: str, size: int, files: int) -> None:
    """Write so many files of about `size` bytes in all."""
    folder.mkdir(parents=True)
    rows = size // files // _ROW_BYTES[ending]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for number in range(files):
            at = _TIMES if ending == "parquet" else _TIME_TEXTS
            select = _ROWS.format(first=number * rows, last=(number + 1) * rows, at=at)
            connection.execute(f"COPY ({select}) TO '{folder}/{number:04d}.{ending}' ({_OPTIONS[ending]})")


def link_files(folder: Path, source: Path, times: int) -> None:
    """Fill a folder with the files of another one, each so many times: hard links, which take no space."""
    folder.mkdir(parents=True)
    for file in source.iterdir():
        for number in range(times):
            os.link(file, folder / f"{file.stem}-{number}{file.suffix}")
