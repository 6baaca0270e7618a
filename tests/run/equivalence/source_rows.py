"""Rows of sources, few and awkward: null keys, empty and quoted texts, late days; and the files they stand in."""

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

from tests.run.equivalence.project_model import SCHEMA

COLUMNS = tuple(column.split()[0] for column in SCHEMA.split(", "))
DAYS = tuple(dt.date(2026, 1, 1) + dt.timedelta(days=number) for number in range(16))
REGIONS = ("north", "south", "", "o'hare", 'a "b", c', "ö", None)
CUSTOMERS = (1, 2, 3, 4, 5, 6, 7, 8, None)

_MOVES = (("amount",), ("amount", "price"), ("day", "ts"), ("region",), ("customer",), ("region", "customer"))

Row = dict[str, Any]


class Focus:
    """The few slices that a change is about, so that not everything changes."""

    def __init__(self, chance: Random) -> None:
        start = chance.randrange(len(DAYS))
        self.days = (*DAYS[start : start + 2], *((None,) if chance.random() < 0.15 else ()))
        self.regions = chance.sample(REGIONS, 2)
        self.customers = chance.sample(CUSTOMERS, 2)


def new_row(chance: Random, number: int, focus: Focus | None = None) -> Row:
    """Return a row with an id of its own."""
    day = chance.choice(focus.days if focus else (*DAYS, *DAYS, None))
    at = None if day is None else dt.datetime.combine(day, dt.time(chance.choice((0, 11, 23)), chance.randrange(60)))
    return {
        "id": number,
        "day": day,
        "ts": at if chance.random() > 0.05 else None,
        "region": chance.choice(focus.regions if focus else REGIONS),
        "customer": chance.choice(focus.customers if focus else CUSTOMERS),
        "amount": chance.choice((None, -5, *range(12))),
        "price": Decimal(chance.randrange(-200, 900)) / 100,
    }


def corrected(chance: Random, row: Row, focus: Focus) -> Row:
    """Return a row with the same id that has another amount, or is in another slice."""
    fresh = new_row(chance, row["id"], focus)
    moved = chance.choice(_MOVES)
    return {**row, **{name: fresh[name] for name in moved}}


def text_of(form: str, rows: Sequence[Row]) -> str:
    """Return the text of a file. A column that none of its rows has is not in it."""
    names = [*COLUMNS, *(["note"] if any("note" in row for row in rows) else [])]
    if form == "jsonl":
        return "".join(json.dumps({name: _json(row.get(name)) for name in names}) + "\n" for row in rows)
    lines = [",".join(names), *(",".join(_csv(row.get(name)) for name in names) for row in rows)]
    return "\n".join(lines) + "\n"


def _csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return str(value)


def _json(value: Any) -> Any:
    return value if value is None or isinstance(value, int | str) else str(value)
