"""`runnel query`."""

import csv
import json
import sys
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runnel.cli.output import command, count, grid, lake, say
from runnel.errors import Mistake

if TYPE_CHECKING:
    from runnel.query.result import Result


_ENDINGS = {"table": (".txt",), "csv": (".csv",), "jsonl": (".jsonl", ".ndjson"), "parquet": (".parquet",)}


@command()
@click.argument("sql")
@click.option("--at", "ref", default="main", metavar="REF", help="Which version; main by default.")
@click.option("--engine", type=click.Choice(["auto", "duckdb", "spark"]), default="auto", show_default=True)
@click.option(
    "--format", "format_", type=click.Choice(list(_ENDINGS)), default=None, help="By default from -o, else table."
)
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), default=None, help="Write to a file.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Rows shown as a table."
)
def query(sql: str, ref: str, engine: str, format_: str | None, out: Path | None, limit: int, as_json: bool) -> None:
    """Ask the lake, in Spark SQL; `-` reads the query from standard input."""
    text = sys.stdin.read() if sql == "-" else sql
    format_ = _format(format_, out, as_json)
    with lake() as opened, opened.query(text, at=ref, engine=engine) as result:  # type: ignore[arg-type]
        if as_json:
            _json(result)
        elif format_ == "table" and out is None:
            _table(result, limit)
        else:
            written = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet, "table": _csv}[format_](result, out)
            if out is not None:
                say(f"wrote {count(written, 'row')} to {out}")


def _format(given: str | None, out: Path | None, as_json: bool) -> str:
    """Return how to write the answer: as asked for, or as the file's name says."""
    if out is None:
        if given == "parquet":
            raise Mistake("USAGE", "Parquet needs a file", fix="runnel query ... --format parquet -o FILE")
        return given or "table"
    if as_json:
        raise Mistake("USAGE", "--json prints to standard output, not to a file", fix="leave out --json, or -o")
    if not out.absolute().parent.is_dir():
        raise Mistake("QUERY_OUT", f"there is no folder {out.absolute().parent}", fix="create it, or choose another")
    found = given or next((name for name, ends in _ENDINGS.items() if out.suffix.lower() in ends), None)
    if found is None:
        raise Mistake("QUERY_OUT", f"{out.name} does not say its format", fix="add --format csv, jsonl or parquet")
    return found


def _json(result: "Result") -> None:
    """Write one JSON document without holding all rows."""
    write = sys.stdout.write
    write(f'{{"columns": {json.dumps(result.columns)}, "rows": [')
    for number, row in enumerate(result.json_rows()):
        write((", " if number else "") + json.dumps(row, ensure_ascii=False))
    rest = {"engine": result.engine, "seconds": round(result.seconds, 6), "at": result.at}
    write("], " + json.dumps(rest)[1:] + "\n")


def _table(result: "Result", limit: int) -> None:
    rows = list(islice(result.json_rows(), limit + 1))
    shown = [["" if value is None else _readable(value) for value in row] for row in rows[:limit]]
    numbers = [at for at, kind in enumerate(result.schema.types) if _is_number(str(kind))]
    click.echo(grid(result.columns, shown, right=numbers))
    more = f"; only the first {limit:,} are shown, -n or --format csv shows more" if len(rows) > limit else ""
    why = f" ({result.reason})" if result.reason else ""
    say(f"{count(len(shown), 'row')} by {result.engine}{why} in {result.seconds:.2f} s at {result.at[:8]}{more}")


def _readable(value: object) -> object:
    """Return a time as people read it; JSON and files keep the ISO form."""
    if isinstance(value, str) and value.endswith("+00:00") and value[10:11] == "T":
        return value.removesuffix("+00:00").replace("T", " ")
    return value


def _is_number(kind: str) -> bool:
    return kind.startswith(("int", "uint", "float", "double", "decimal"))


def _csv(result: "Result", out: Path | None) -> int:
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


def _jsonl(result: "Result", out: Path | None) -> int:
    written = 0
    with out.open("w", encoding="utf-8") if out else nullcontext(sys.stdout) as target:
        for row in result.json_rows():
            target.write(json.dumps(dict(zip(result.columns, row, strict=True)), ensure_ascii=False) + "\n")
            written += 1
    return written


def _parquet(result: "Result", out: Path | None) -> int:
    import pyarrow.parquet as pq

    written = 0
    assert out is not None
    with pq.ParquetWriter(out, result.schema) as writer:
        for batch in result.batches():
            writer.write_batch(batch)
            written += batch.num_rows
    return written
