"""Every kind of task, as text. Each makes `amount`, and the columns that name its slices, so that all can be chained.

A kind takes the inputs that it may read, and a chance, and returns a task without a name; None where no input fits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.run.equivalence.project_model import Task
from tests.run.equivalence.source_rows import COLUMNS

KEYS = ("day", "region", "customer")


@dataclass(frozen=True)
class Input:
    """A table that a task may read."""

    table: str
    columns: tuple[str, ...]
    is_unique: bool = False

    def has(self, *names: str) -> bool:
        return set(names) <= set(self.columns)


Inputs = Sequence[Input]
Kind = Callable[[Inputs, Random], Task | None]


def rowwise(inputs: Inputs, chance: Random) -> Task | None:
    a = chance.choice(inputs)
    options: dict[str, Any] = {"rowwise": True}
    if a.is_unique and chance.random() < 0.6:
        options["key"] = ["id"]
    return _filtering("rowwise", a, chance, options)


def keep(inputs: Inputs, chance: Random) -> Task | None:
    a, by = _keyed(inputs, chance)
    return _filtering("keep", a, chance, {"by": by}) if a else None


def _filtering(kind: str, a: Input, chance: Random, options: dict[str, Any]) -> Task:
    sql = "select * except (amount), amount + CONST as amount from {a} where coalesce(amount % 7, 8) <> CONST % 7"
    python = 'return a.where("coalesce(amount % 7, 8) <> CONST % 7").withColumn("amount", F.col("amount") + CONST)'
    return _task(kind, [a], python, sql, a.columns, chance, options, is_unique=a.is_unique)


def group(inputs: Inputs, chance: Random) -> Task | None:
    a, by = _keyed(inputs, chance)
    if a is None:
        return None
    names = [*by, *(name for name in KEYS if name not in by and name in a.columns and chance.random() < 0.25)]
    price = "price" in a.columns
    keys, texts = ", ".join(names), ", ".join(f'"{name}"' for name in names)
    more = ', F.sum("price").alias("price")' if price else ""
    python = f'return a.groupBy({texts}).agg((F.sum("amount") + CONST).alias("amount"), F.count("*").alias("n"){more})'
    more = ", sum(price) as price" if price else ""
    sql = f"select {keys}, sum(amount) + CONST as amount, count(*) as n{more} from {{a}} group by {keys}"
    options: dict[str, Any] = {"by": by} | ({"key": names} if chance.random() < 0.25 else {})
    columns = (*names, "amount", "n", *(["price"] if price else []))
    return _task("group", [a], python, sql, columns, chance, options)


def day_of(inputs: Inputs, chance: Random) -> Task | None:
    a = _having(inputs, chance, "ts")
    python = 'return a.groupBy(F.to_date("ts").alias("day")).agg((F.max("amount") + CONST).alias("amount"))'
    sql = "select to_date(ts) as day, max(amount) + CONST as amount from {a} group by to_date(ts)"
    options = {"by": ["day"], "by_input": {"a": "to_date(ts)"}}
    return _task("day of", [a], python, sql, ("day", "amount"), chance, options) if a else None


def window(inputs: Inputs, chance: Random) -> Task | None:
    a, by = _keyed(inputs, chance)
    if a is None:
        return None
    own = ["id"] if a.is_unique and chance.random() < 0.5 else []
    parts, order = ", ".join(f'"{name}"' for name in by), ", ".join(f'"{name}"' for name in ("amount", *own))
    taken = ", ".join(f'"{name}"' for name in (*own, *by, "amount"))
    python = (
        f"w = Window.partitionBy({parts}).orderBy({order})\n"
        "running = w.rowsBetween(Window.unboundedPreceding, Window.currentRow)\n"
        f'n, other = F.row_number().over(w) + CONST, F.sum("amount").over(running)\n'
        f'return a.select({taken}).withColumn("n", n).withColumn("other", other)'
    )
    keys, sorting, names = ", ".join(by), ", ".join(("amount", *own)), ", ".join((*own, *by, "amount"))
    over = f"partition by {keys} order by {sorting}"
    sql = (
        f"select {names}, row_number() over ({over}) + CONST as n, sum(amount) over ({over} "
        "rows between unbounded preceding and current row) as other from {a}"
    )
    options = {"by": by} | ({"key": own} if own else {})
    columns = (*own, *by, "amount", "n", "other")
    return _task("window", [a], python, sql, columns, chance, options, is_unique=bool(own))


def join(inputs: Inputs, chance: Random) -> Task | None:
    a, by = _keyed(inputs, chance)
    if a is None:
        return None
    number = chance.choice((1, 1, 2))
    others = [chance.choice([one for one in inputs if one.has(*by)]) for _ in range(number)]
    hows = [chance.choice(("inner", "left", "full", "right")) for _ in others]
    left = "a" if chance.random() < 0.5 else f'a.groupBy({_texts(by)}).agg(F.sum("amount").alias("amount"))'
    python = f'made = {left}.select({_texts(by)}, (F.col("amount") + CONST).alias("amount"))\n'
    for name, how in zip("bc", hows, strict=False):
        side = f'{name}.groupBy({_texts(by)}).agg(F.max("amount").alias("{name}_amount"))'
        python += f'made = made.join({side}, [{_texts(by)}], "{how}")\n'
    columns = (*by, "amount", *(f"{name}_amount" for name, _ in zip("bc", others, strict=False)))
    keys = ", ".join(by)
    sides = "".join(
        f" {how} join (select {keys}, max(amount) as {name}_amount from {{{name}}} group by {keys}) using ({keys})"
        for name, how in zip("bc", hows, strict=False)
    )
    sql = f"select * from (select {keys}, amount + CONST as amount from {{a}}){sides}"
    return _task("join", [a, *others], python + "return made", sql, columns, chance, {"by": by})


def cross(inputs: Inputs, chance: Random) -> Task | None:
    a, b = _having(inputs, chance, "day"), _having(inputs, chance, "day")
    if a is None or b is None:
        return None
    python = (
        'right = b.groupBy("day").agg(F.sum("amount").alias("other")).withColumnRenamed("day", "on")\n'
        'both = a.select("day", F.col("amount") + CONST).toDF("day", "amount").crossJoin(right)\n'
        'return both.where("day = `on`").drop("on")'
    )
    sql = (
        "select l.day, l.amount + CONST as amount, r.other from {a} l cross join "
        "(select day, sum(amount) as other from {b} group by day) r where l.day = r.day"
    )
    return _task("cross", [a, b], python, sql, ("day", "amount", "other"), chance, {"by": ["day"]})


def union(inputs: Inputs, chance: Random) -> Task | None:
    a, by = _keyed(inputs, chance)
    if a is None:
        return None
    b = chance.choice([one for one in inputs if one.has(*by)])
    python = f'return a.select({_texts(by)}, "amount").union(b.select({_texts(by)}, F.col("amount") + CONST))'
    keys = ", ".join(by)
    sql = f"select {keys}, amount from {{a}} union all select {keys}, amount + CONST from {{b}}"
    return _task("union", [a, b], python, sql, (*by, "amount"), chance, {"by": by})


def rolling(inputs: Inputs, chance: Random) -> Task | None:
    key = chance.choice(("day", "day", "customer"))
    a = _having(inputs, chance, key)
    back = chance.choice((1, 6)) if key == "day" else 2
    python = (
        f'each = a.groupBy("{key}").agg(F.sum("amount").alias("amount"))\n'
        f'before = each.toDF("past", "earlier")\n'
        f'both = each.join(before, F.expr("past >= {key} - {back} and past <= {key}"))\n'
        f'return both.groupBy("{key}").agg((F.sum("earlier") + CONST).alias("amount"), F.count("*").alias("n"))'
    )
    sql = (
        f"select l.{key}, sum(r.amount) + CONST as amount, count(*) as n from (select distinct {key} from {{a}}) l "
        f"join {{a}} r on r.{key} >= l.{key} - {back} and r.{key} <= l.{key} group by l.{key}"
    )
    options = {"by": [key], "lookback": {"a": back}}
    return _task("rolling", [a], python, sql, (key, "amount", "n"), chance, options) if a else None


def distinct(inputs: Inputs, chance: Random) -> Task | None:
    a, by = _keyed(inputs, chance)
    if a is None:
        return None
    names = [*by, *(name for name in KEYS if name in a.columns and name not in by and chance.random() < 0.4)]
    python = f'return a.select({_texts(names)}).distinct().withColumn("amount", F.lit(CONST).cast("long"))'
    sql = f"select distinct {', '.join(names)}, cast(CONST as long) as amount from {{a}}"
    return _task("distinct", [a], python, sql, (*names, "amount"), chance, {"by": by})


def beside(inputs: Inputs, chance: Random) -> Task | None:
    """Read an input that has no slices: whatever changes there changes every slice."""
    a, by = _keyed(inputs, chance)
    whole = [one for one in inputs if not one.has(*by)]
    if a is None or not whole:
        return None
    python = (
        f'made = a.groupBy({_texts(by)}).agg(F.sum("amount").alias("amount"))\n'
        'return made.crossJoin(b.agg((F.sum("amount") + CONST).alias("other")))'
    )
    keys = ", ".join(by)
    sql = (
        f"select {keys}, sum(amount) as amount, max(other) as other from {{a}} cross join "
        f"(select sum(amount) + CONST as other from {{b}}) group by {keys}"
    )
    return _task("beside", [a, chance.choice(whole)], python, sql, (*by, "amount", "other"), chance, {"by": by})


def reference(inputs: Inputs, chance: Random) -> Task | None:
    """Read an input whose changes alone recompute nothing; where it has the slices, a slice reads its own."""
    a, by = _keyed(inputs, chance)
    others = [one for one in inputs if a is None or one.table != a.table]
    if a is None or not others:
        return None
    b = chance.choice(others)
    made = f'a.groupBy({_texts(by)}).agg((F.sum("amount") + CONST).alias("amount"))'
    python = f'return {made}.crossJoin(b.agg(F.sum("amount").alias("other")))'
    if b.has(*by):
        side = f'b.groupBy({_texts(by)}).agg(F.sum("amount").alias("other"))'
        python = f'return {made}.join({side}, [{_texts(by)}], "left")'
    options = {"by": by, "reference": ["b"]}
    return _task("reference", [a, b], python, None, (*by, "amount", "other"), chance, options, uncompared=("other",))


def total(inputs: Inputs, chance: Random) -> Task | None:
    python = 'return a.agg((F.sum("amount") + CONST).alias("amount"), F.count("*").alias("n"))'
    sql = "select sum(amount) + CONST as amount, count(*) as n from {a}"
    return _task("total", [chance.choice(inputs)], python, sql, ("amount", "n"), chance, {})


def plain(inputs: Inputs, chance: Random) -> Task | None:
    """Group without slices: computed in full."""
    a, by = _keyed(inputs, chance)
    wanted = '(F.avg("amount") + CONST).alias("mean"), F.min("amount").alias("amount")'
    python = f"return a.groupBy({_texts(by)}).agg({wanted})"
    keys = ", ".join(by)
    sql = f"select {keys}, avg(amount) + CONST as mean, min(amount) as amount from {{a}} group by {keys}"
    return _task("plain", [a], python, sql, (*by, "amount", "mean"), chance, {}) if a else None


KINDS: dict[str, tuple[Kind, int]] = {
    "rowwise": (rowwise, 3),
    "keep": (keep, 2),
    "group": (group, 5),
    "day of": (day_of, 2),
    "window": (window, 2),
    "join": (join, 5),
    "cross": (cross, 1),
    "union": (union, 2),
    "rolling": (rolling, 2),
    "distinct": (distinct, 2),
    "beside": (beside, 1),
    "reference": (reference, 1),
    "total": (total, 1),
    "plain": (plain, 1),
}


def of_source(table: str) -> Input:
    return Input(table, COLUMNS, is_unique=True)


def _keyed(inputs: Inputs, chance: Random) -> tuple[Input | None, list[str]]:
    """Return an input that has keys, and some of them."""
    able = [one for one in inputs if any(one.has(key) for key in KEYS)]
    if not able:
        return None, []
    a = chance.choice(able)
    keys = [key for key in KEYS if a.has(key)]
    by = chance.sample(keys, 2) if len(keys) > 1 and chance.random() < 0.25 else [chance.choice(keys)]
    return a, ["day"] if "day" in keys and chance.random() < 0.4 else by


def _having(inputs: Inputs, chance: Random, column: str) -> Input | None:
    return chance.choice([one for one in inputs if one.has(column)] or [None])


def _task(
    kind: str,
    inputs: Sequence[Input],
    python: str,
    sql: str | None,
    columns: Sequence[str],
    chance: Random,
    options: dict[str, Any],
    *,
    is_unique: bool = False,
    uncompared: tuple[str, ...] = (),
) -> Task:
    is_sql = sql is not None and chance.random() < 0.35
    partition = _partition(columns, chance)
    return Task(
        table="",
        kind=kind,
        inputs=tuple(one.table for one in inputs),
        body=sql if is_sql and sql else python,
        columns=tuple(columns),
        options=tuple((options | ({"partition": partition} if partition else {})).items()),
        is_sql=is_sql,
        constant=chance.randrange(3),
        is_unique=is_unique,
        uncompared=uncompared,
        aside=chance.choice(("drop", "quarantine")) if chance.random() < 0.2 else None,
        is_guarded=chance.random() < 0.3,
    )


def _partition(columns: Sequence[str], chance: Random) -> list[str]:
    able = [name for name in ("day", "region", "customer") if name in columns]
    if not able or chance.random() < 0.7:
        return []
    return [chance.choice([able[0], *("bucket(3, customer)" for _ in "x" if "customer" in able)])]


def _texts(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
