"""`runnel query`."""

import csv
import json
import sys
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, format_count, format_table, open_lake, print_text, print_to_stderr
from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.query.result import QueryResult


_ENDINGS = {"table": (".txt",), "csv": (".csv",), "jsonl": (".jsonl", ".ndjson"), "parquet": (".parquet",)}


@command()
@click.argument("sql")
@click.option("--at", "ref", default="main", metavar="REF", help="Branch, tag, commit or main@TIME; main by default.")
@click.option(
    "--engine", type=click.Choice(["auto", "duckdb", "spark"]), default="auto", show_default=True, help="Query engine."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(_ENDINGS)),
    default=None,
    help="Output format; by default from the extension of -o, else table.",
)
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), default=None, help="Write to a file.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Maximum number of rows in a table.",
)
def query(sql: str, ref: str, engine: str, format_: str | None, out: Path | None, limit: int, as_json: bool) -> None:
    """Query the lake in Spark SQL; `-` reads the query from standard input."""
    text = sys.stdin.read() if sql == "-" else sql
    format_ = _choose_format(format_, out, as_json)
    with open_lake() as project_lake, project_lake.query(text, at=ref, engine=engine) as result:  # type: ignore[arg-type]
        if as_json:
            _print_json(result)
        elif format_ == "table" and out is None:
            _print_table(result, limit)
        else:
            written = {"csv": _write_csv, "jsonl": _write_jsonl, "parquet": _write_parquet, "table": _write_csv}[
                format_
            ](result, out)
            if out is not None:
                print_to_stderr(f"wrote {format_count(written, 'row')} to {out}")


def _choose_format(requested: str | None, out: Path | None, as_json: bool) -> str:
    """Return the output format: the requested one, or the one of the file's suffix."""
    if out is None:
        if requested == "parquet":
            raise Mistake("USAGE", "Parquet needs a file", fix="runnel query ... --format parquet -o FILE")
        return requested or "table"
    if as_json:
        raise Mistake("USAGE", "--json prints to standard output, not to a file", fix="leave out --json, or -o")
    if not out.absolute().parent.is_dir():
        raise Mistake("QUERY_OUT", f"there is no folder {out.absolute().parent}", fix="create it, or choose another")
    chosen_format = requested or next(
        (name for name, endings in _ENDINGS.items() if out.suffix.lower() in endings), None
    )
    if chosen_format is None:
        raise Mistake(
            "QUERY_OUT", f"the extension of {out.name} names no format", fix="add --format csv, jsonl or parquet"
        )
    return chosen_format


def _print_json(result: "QueryResult") -> None:
    """Print one JSON document without holding all rows in memory."""
    write = sys.stdout.write
    write(f'{{"columns": {json.dumps(result.columns)}, "rows": [')
    for number, row in enumerate(result.json_rows()):
        write((", " if number else "") + json.dumps(row, ensure_ascii=False))
    summary = {"engine": result.engine, "seconds": round(result.seconds, 6), "at": result.at}
    write("], " + json.dumps(summary)[1:] + "\n")


def _print_table(result: "QueryResult", limit: int) -> None:
    rows = list(islice(result.json_rows(), limit + 1))
    cells = [["" if value is None else _format_value(value) for value in row] for row in rows[:limit]]
    numbers = [column for column, kind in enumerate(result.schema.types) if _is_number(str(kind))]
    print_text(format_table(result.columns, cells, right_aligned=numbers))
    more = f"; only the first {limit:,} are shown, -n or --format csv shows more" if len(rows) > limit else ""
    reason = f" ({result.reason})" if result.reason else ""
    print_to_stderr(
        f"{format_count(len(cells), 'row')} by {result.engine}{reason} "
        f"in {result.seconds:.2f} s at {result.at[:8]}{more}"
    )


def _format_value(value: object) -> object:
    """Return a time for people; JSON and files keep the ISO form."""
    if isinstance(value, str) and value.endswith("+00:00") and value[10:11] == "T":
        return value.removesuffix("+00:00").replace("T", " ")
    return value


def _is_number(kind: str) -> bool:
    return kind.startswith(("int", "uint", "float", "double", "decimal"))


def _write_csv(result: "QueryResult", out: Path | None) -> int:
    written = 0
    with out.open("w", newline="", encoding="utf-8") if out else nullcontext(sys.stdout) as target:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(result.columns)
        for row in result.json_rows():
            writer.writerow(
                [
                    "" if value is None else json.dumps(value) if isinstance(value, list | dict) else value
                    for value in row
                ]
            )
            written += 1
    return written


def _write_jsonl(result: "QueryResult", out: Path | None) -> int:
    written = 0
    with out.open("w", encoding="utf-8") if out else nullcontext(sys.stdout) as target:
        for row in result.json_rows():
            target.write(json.dumps(dict(zip(result.columns, row, strict=True)), ensure_ascii=False) + "\n")
            written += 1
    return written


def _write_parquet(result: "QueryResult", out: Path | None) -> int:
    import pyarrow.parquet as pq

    written = 0
    assert out is not None
    with pq.ParquetWriter(out, result.schema) as writer:
        for batch in result.batches():
            writer.write_batch(batch)
            written += batch.num_rows
    return written
