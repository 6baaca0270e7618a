"""Random expressions that name slices, and random tasks that use them: many right, many wrong, some hard to follow.

A seed says it all.
"""

from dataclasses import dataclass
from random import Random

COLUMNS = "i int, j bigint, s string, d date, ts timestamp, x double"


@dataclass(frozen=True)
class Case:
    """A task in SQL over the view `rows`, whose column `z` names its slices; `expression` names those of a row."""

    seed: int
    expression: str
    sql: str
    lookback: int = 0


def case(seed: int) -> Case:
    """Return the case of a seed."""
    chance = Random(seed)
    return _looking_back(seed, chance) if chance.random() < 0.25 else _sliced(seed, chance)


def _number(chance: Random, depth: int) -> str:
    """Return an expression of a whole number."""
    if depth <= 0:
        return chance.choice(("i", "j", "length(s)", "year(ts)", "unix_date(d)", str(chance.randrange(4))))
    a, b = (_number(chance, depth - 1) for _ in range(2))
    return chance.choice(
        (
            f"({a} + {b})",
            f"pmod({a}, 3)",
            f"coalesce({a}, {b})",
            f"nullif({a}, {b})",
            f"if({_truth(chance, depth - 1)}, {a}, {b})",
            f"case when {_truth(chance, depth - 1)} then {a} else {b} end",
            f"case when {_truth(chance, depth - 1)} then {a} end",
            f"case {a} when 1 then {b} when 2 then 5 end",
            f"decode({a}, 1, 10, 2, {b}, 30)",
            f"hash({a})",
            f"cast({a} as bigint)",
            f"greatest({a}, {b})",
            f"size(filter(array({a}, {b}), e -> e > 1))",
            f"aggregate(array({a}, {b}), 0L, (m, e) -> m + e)",
            f"length({_text(chance, depth - 1)})",
        )
    )


def _text(chance: Random, depth: int) -> str:
    """Return an expression of a text."""
    if depth <= 0:
        return chance.choice(("s", "'a'", "date_format(d, 'yyyy-MM')", "string(i)"))
    a, b = (_text(chance, depth - 1) for _ in range(2))
    return chance.choice(
        (
            f"upper({a})",
            f"concat({a}, {b})",
            f"nvl({a}, {b})",
            f"substring({a}, 1, 1)",
            f"regexp_replace({a}, 'a', 'b')",
            f"case when {_truth(chance, depth - 1)} then {a} else {b} end",
            f"to_json(struct({_number(chance, depth - 1)}))",
            f"array_join(transform(array({a}, {b}), e -> concat(e, 'x')), '')",
            f"typeof({_number(chance, depth - 1)})",
            f"string({_number(chance, depth - 1)})",
        )
    )


def _truth(chance: Random, depth: int) -> str:
    """Return a condition."""
    number = _number(chance, depth - 1)
    return chance.choice(
        (
            f"{number} between 1 and 3",
            f"{number} < 2",
            f"{number} in (1, 2)",
            "s like 'a%'",
            "s rlike 'b'",
            "s is null",
            f"not {number} = 1",
            "exists(array(i, j), e -> e > 2)",
        )
    )


def _date(chance: Random) -> str:
    """Return an expression of a date or a time."""
    return chance.choice(
        (
            "d",
            "to_date(ts)",
            "cast(ts as date)",
            "date_trunc('month', ts)",
            "last_day(d)",
            "date_add(d, i)",
            "to_date(concat('2026-0', 1 + pmod(i, 3)), 'yyyy-MM')",
            "window(ts, '1 day').start",
            "make_date(2026, 1, 1 + pmod(i, 5))",
        )
    )


def expression(chance: Random) -> str:
    """Return an expression that names the slice of a row."""
    return chance.choice((_number, _text, _truth, lambda chance, _: _date(chance)))(chance, chance.choice((0, 1, 1, 2)))


def _sliced(seed: int, chance: Random) -> Case:
    own = expression(chance)
    other = chance.choice((expression(chance), own.replace("i", "i").replace("(i", "(cast(i as bigint)"), own))
    used = own if chance.random() < 0.8 else other
    columns = "i, j, s, d, ts, x"
    bodies = [
        f"select {used} as z, j, s from rows where {_truth(chance, 1)}",
        f"select {used} as z, count(*) n, sum(j) m from rows group by {used}",
        f"select z, max(j) m from (select {used} as z, j from rows) group by z",
        f"select {used} as z, j, sum(j) over (partition by {used}) m from rows",
        f"select {used} as z, j, sum(j) over () m from rows",
        f"select z, j, rank() over (partition by z order by j, i) n from (select *, {used} as z from rows)",
        f"select distinct {used} as z, s from rows",
        f"select {used} as z, n from (select {columns}, count(*) n from rows group by all)",
        f"select {used} as z, n from (select {', '.join(chance.sample(columns.split(', '), 3))}, count(*) n "
        "from rows group by all)",
        f"with x as (select {used} as z, j from rows) select a.z, a.j, b.m from x a "
        f"{chance.choice(('join', 'left join', 'left semi join', 'left anti join'))} "
        "(select z, max(j) m from x group by z) b on a.z = b.z".replace(", b.m", "", 1 if chance.random() < 0.5 else 0),
        f"with x as (select {used} as z, j from rows) select coalesce(a.z, b.z) as z, a.j, b.j k from x a "
        f"full join (select * from x where j > 2) b on a.z = b.z and a.j = b.j",
        f"with x as (select {own} as z, j from rows), y as (select {other} as z, j from rows) "
        f"{chance.choice(('select * from x union all select * from y', 'select * from x except select * from y'))}",
        f"select {own} as z, j from rows a where exists (select 1 from rows b where b.j > a.j)",
        f"with x as (select {used} as z, j from rows) select z, j from x where z in (select z from x where j > 2)",
        f"from rows |> extend {used} as z |> aggregate sum(j) as n, min(s) as t group by z",
        f"from rows |> extend {used} as z |> aggregate sum(j) as n group by s",
        f"select {used} as z, j, e from rows lateral view explode(array(i, j)) as e",
        f"select {used} as z, j from rows order by j limit 3",
        f"select {used} as z, s, count(*) n from rows group by {used}, rollup (s)",
        f"select z, s, count(*) n from (select {used} as z, s from rows) group by cube (z, s)",
    ]  # fmt: skip
    return Case(seed, own, chance.choice(bodies))


def _looking_back(seed: int, chance: Random) -> Case:
    """Return a task that reads earlier slices: up to as many as it says, or more."""
    key = chance.choice(("d", "i", "to_date(ts)"))
    lookback, width, more = chance.randrange(1, 5), chance.randrange(6), chance.choice((0, 0, 0, 1))
    unit = f"{width}" if key == "i" else f"interval {width} days"
    after = "current row" if not more else f"{more} following" if key == "i" else f"interval {more} days following"
    over = chance.choice(("", "partition by s ")) + f"order by z range between {unit} preceding and {after}"
    rows = f"(select {key} as z, j, s from rows)"
    late = chance.choice((f"b.z >= a.z - {width}", f"b.z > a.z - {width + 1}", f"a.z <= b.z + {width}"))
    early = chance.choice(("b.z <= a.z", f"b.z <= a.z + {more}", "a.z >= b.z", "b.z < a.z + 1", "true"))
    within = chance.choice((f"{late} and {early}", f"b.z between a.z - {width} and a.z + {more}"))
    bodies = [
        f"select z, j, sum(j) over ({over}) n from {rows}",
        f"with x as (select z, s, sum(j) n from {rows} group by z, s) select z, s, sum(n) over ({over}) m from x",
        f"with x as (select z, s, sum(j) over ({over}) n from {rows}) select z, sum(n) over ({over}) m from x",
        f"select z, j, lag(j) over (order by z, j) n from {rows}",
        f"select z, sum(j) over (order by z rows {width} preceding) n from (select z, sum(j) j from {rows} group by z)",
        f"select a.z, count(*) n, sum(b.j) m from (select distinct z from {rows}) a "
        f"{chance.choice(('join', 'left join'))} {rows} b on {within} group by a.z",
        f"select a.z, a.j, b.s from {rows} a left anti join {rows} b on {within} and a.j < b.j".replace(", b.s", ""),
        f"select a.z, b.j from {rows} a, {rows} b where {within} and a.s = b.s",
        f"select z + k as z, sum(j) n from {rows} lateral view explode(sequence(0, {width})) as k group by 1",
        f"select s, max(z) as z from {rows} group by s",
    ]
    return Case(seed, key, chance.choice(bodies), lookback)
