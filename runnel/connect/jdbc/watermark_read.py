"""A table or a query with a watermark: only rows from the greatest value on that was seen before are read.

With a key, rows up to `overlap` before it are looked at again, and rows that vanished go. Without one rows only come.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.connect.feed.protocol import Fetched, Held, News, Progress, State
from runnel.connect.jdbc.bad_rows import is_once, judged, once
from runnel.connect.jdbc.database import Database
from runnel.connect.jdbc.null_watermark_rows import Unmarked, unmarked
from runnel.connect.jdbc.table_inspection import Look
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from runnel.connect.jdbc.row_reader import Read


@dataclass(frozen=True)
class Marks:
    """Rows that have a watermark, how many of them are beyond the last one seen, and the greatest now.

    `fell`: it is less than the last one, because rows were deleted or restored. `without` have no watermark. `rows` is
    None where nobody counted them.
    """

    rows: int | None
    new: int
    last: str | None
    fell: bool
    without: int = 0


def news(database: Database, looked: Look, known: State | None, *, is_first: bool) -> News:
    """Return whether there are rows beyond the watermark, others in the overlap, or fewer than there were."""
    is_quick = _is_quick(database, looked, known)
    marks = _glimpse(database, looked, known) if is_quick else _marks(database, looked, known)
    if is_quick and not marks.new and _is_counted(looked):
        marks = _marks(database, looked, known)
    aside = unmarked(database, looked, known, marks.without)
    if known is None or known["watermark"] is None:
        if known is not None and not marks.rows and not aside.is_news:
            return News(f"{looked.name} has no rows", is_empty=True)
        why = (
            "reads all rows of" if is_first or known else "its declaration or columns changed: reads all rows again of"
        )
        return News(f"{why} {looked.name}", rows=marks.rows)
    if marks.new:
        differs = True
    elif looked.key:
        is_other = _is_counted(looked) and marks.rows != known["rows"]
        differs = is_other or marks.fell or _window(database, looked, known) != known["window"]
    else:
        differs = bool(_late(marks, known) and looked.source.on_bad == "stop")
    if not (differs or aside.is_news):
        return News(f"{looked.name} has nothing after {known['watermark']}", is_empty=True)
    return News(_told(looked, marks, known, aside), rows=marks.new)


def fetch(
    database: Database, looked: Look, known: State | None, folder: Path, tell: Progress, held: Held | None
) -> Fetched:
    """Read what is new, and all keys where fewer rows are left than the table will have."""
    is_quick = _is_quick(database, looked, known)
    marks = _glimpse(database, looked, known) if is_quick else _marks(database, looked, known)
    aside = unmarked(database, looked, known, marks.without)
    aside.judge()
    is_anew, is_unique = known is None or known["watermark"] is None, is_once(database, looked)
    names = tuple(column.name for column in looked.key)
    with database.aside(lambda: _counted(database, looked, marks)) as counted:
        found = _read(database, looked, known if not is_anew else None, marks, folder, tell)
        if not is_unique:
            once(looked, found.parts)
        is_mirror = bool(names) and not is_anew and _is_counted(looked)
        rows = held.rows_after(found.parts, names) if held is not None and is_mirror else None
    marks = counted()
    if not is_anew and not looked.key:
        _refuse_late(looked, marks, known)
    present = (_keys(database, looked, folder, tell),) if is_mirror and rows != marks.rows else ()
    state = _state(database, looked, marks, known, aside)
    mode: Any = "replace" if is_anew else "upsert" if names else "append"
    identity = hashlib.sha256(json.dumps([known, state], sort_keys=True).encode()).hexdigest()
    bad = judged(looked, (*found.bad, *aside.rows(folder)))
    return Fetched(found.parts, state, f"jdbc:{identity}", mode, names, present=present, bad=bad)


def _read(database: Database, looked: Look, known: State | None, marks: Marks, folder: Path, tell: Progress) -> "Read":
    from runnel.connect.jdbc.row_reader import read

    mark = looked.mark
    assert mark is not None
    if known is None:
        shared = looked.origin.partitions > 1
        conditions = database.splits(looked.relation, looked.origin, looked.columns) if shared else []
        conditions = [f"({condition}) AND {mark.raw} IS NOT NULL" for condition in conditions or ["1 = 1"]]
        total = marks.rows
    else:
        low = _low(database, looked, known, marks)
        conditions, total = [f"{mark.raw} {'>=' if looked.key else '>'} {low}"], marks.new
    return read(database, looked.columns, looked.relation, conditions, folder, looked.name, tell, total)


def _low(database: Database, looked: Look, known: State, marks: Marks) -> str:
    """Return from where on rows are read, as SQL."""
    assert looked.mark is not None
    last = marks.last if marks.fell and marks.last is not None else known["watermark"]
    if looked.key and looked.origin.overlap is not None:
        return database.earlier(last, looked.mark, looked.origin.overlap)
    return database.literal(last, looked.mark)


def _is_counted(looked: Look) -> bool:
    """Tell whether rows have to be counted: to see that some vanished or, where they only come, that some came late."""
    return looked.origin.removed == "delete" or not looked.key


def _is_quick(database: Database, looked: Look, known: State | None) -> bool:
    """Tell whether what is new is found without looking at all rows."""
    assert looked.mark is not None
    is_known = known is not None and known["watermark"] is not None
    return is_known and database.is_indexed(looked.origin, looked.mark.name)


def _glimpse(database: Database, looked: Look, known: State | None) -> Marks:
    """Return what an index of the watermark tells: all but how many rows there are."""
    assert looked.mark is not None and known is not None
    raw, relation = looked.mark.raw, looked.relation
    last = database.literal(known["watermark"], looked.mark)
    new = database.row(f"SELECT count(*) FROM {relation} WHERE {raw} > {last}")[0]
    fell = f"CASE WHEN max({raw}) < {last} THEN 1 ELSE 0 END"
    top, is_less = database.row(f"SELECT {database.text(f'max({raw})')}, {fell} FROM {relation}")
    without = database.row(f"SELECT count(*) FROM {relation} WHERE {raw} IS NULL")[0]
    return Marks(None, int(new), top, bool(is_less) or top is None, int(without))


def _counted(database: Database, looked: Look, marks: Marks) -> Marks:
    """Return the same, with the number of rows where that is wanted."""
    if marks.rows is not None or not _is_counted(looked):
        return marks
    rows = int(database.row(f"SELECT count(*) FROM {looked.relation}")[0])
    return replace(marks, rows=rows - marks.without)


def _marks(database: Database, looked: Look, known: State | None) -> Marks:
    mark = looked.mark
    assert mark is not None
    last = known["watermark"] if known is not None else None
    new, fell = "count(*)", "0"
    if last is not None:
        literal = database.literal(last, mark)
        new = f"sum(CASE WHEN {mark.raw} > {literal} THEN 1 ELSE 0 END)"
        fell = f"CASE WHEN max({mark.raw}) < {literal} THEN 1 ELSE 0 END"
    found = database.row(
        f"SELECT count({mark.raw}), {new}, {database.text(f'max({mark.raw})')}, {fell}, count(*) FROM {looked.relation}"
    )
    rows, count, top, is_less, everything = found
    fallen = bool(is_less) or (last is not None and not rows)
    return Marks(int(rows), int(count or 0), top, fallen, int(everything) - int(rows))


def _window(database: Database, looked: Look, known: State) -> list[Any]:
    """Return the checksum of the rows from a state's watermark, less the overlap, on."""
    assert looked.mark is not None
    marks = Marks(0, 0, None, fell=False)
    return list(looked.counted(database, f"{looked.mark.raw} >= {_low(database, looked, known, marks)}"))


def _state(database: Database, looked: Look, marks: Marks, known: State | None, aside: Unmarked) -> dict[str, Any]:
    last = marks.last
    if last is None and known is not None and not looked.key:
        last = known["watermark"]  # rows that were all deleted stay, and what comes next comes after them
    state = {"declared": looked.declared, "watermark": last, "rows": marks.rows, **aside.state}
    window = _window(database, looked, state) if looked.key and last is not None else []
    return {**state, "window": window}


def _keys(database: Database, looked: Look, folder: Path, tell: Progress) -> Path:
    """Return a file of all keys that there are."""
    from runnel.connect.jdbc.row_reader import read

    below = folder / "keys"
    below.mkdir()
    read(database, looked.key, looked.relation, ["1 = 1"], below, looked.name, tell)
    return below / "rows.parquet"


def _late(marks: Marks, known: State) -> int:
    """Return how many rows came at or before the watermark since it was reached, as far as the counts tell."""
    return max((marks.rows or 0) - marks.new - int(known["rows"] or 0), 0)


def _refuse_late(looked: Look, marks: Marks, known: State | None) -> None:
    late = _late(marks, known) if known is not None else 0
    if known is None or not late or looked.source.on_bad != "stop":
        return
    what = f"{late:,} row{'s' if late != 1 else ''} of {looked.name} came late: not after {known['watermark']}, "
    what += "up to where it was read before, so they were not read"
    fix = 'declare key= and overlap="10 minutes" so that late rows are found, or leave them out with on_bad="drop"'
    raise RunnelError("SOURCE_LATE_ROWS", what, at=str(looked.source.place), fix=fix)


def _told(looked: Look, marks: Marks, known: State, aside: Unmarked) -> str:
    said = []
    if marks.new:
        said.append(f"{marks.new:,} new or changed row{'s' if marks.new != 1 else ''} of {looked.name}")
    elif aside.is_news:
        said.append(f"{aside.count:,} rows of {looked.name} without a watermark")
    elif (marks.rows or 0) < (known["rows"] or 0):
        said.append(f"rows of {looked.name} are gone")
    else:
        said.append(f"rows of {looked.name} came late")
    if aside.count and looked.source.on_bad == "drop":
        said.append(f"{aside.count:,} without `{looked.origin.watermark}` are left out")
    return "; ".join(said)
