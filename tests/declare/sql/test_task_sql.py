"""SQL tasks: tables and parameters are read off the text, comments and formatting don't count."""

import pytest

from runnel.declare.sql.header_comment import parse_header_comment
from runnel.declare.sql.task_sql import find_parameters, find_references, normalize_sql
from runnel.errors import Mistake
from runnel.names import TableName
from tests.declare.conftest import Project

ORDERS = {"flows/o.py": 'import runnel as rn\nrn.source("ods.orders", rn.manual())\n'}

TABLES = {
    "alias": ("select o.x from ods.orders o", "ods.orders"),
    "join and quotes": (
        "select * from `ods`.`orders` o left join dim . sellers s on o.x = s.x",
        "ods.orders dim.sellers",
    ),
    "comma": ("select * from ods.a, ods.b", "ods.a ods.b"),
    "cases": ("select * from ODS.Orders", "ods.orders"),
    "with": ("with t as (select * from ods.a), u as (select * from t) select * from u, ods.b", "ods.a ods.b"),
    "with that hides": ("with a as (select * from ods.a) select * from a", "ods.a"),
    "subqueries": (
        "select (select max(x) from ods.a) from (select * from ods.b) where y in (select y from ods.c)",
        "ods.a ods.b ods.c",
    ),
    "exists": ("select * from ods.a a where exists (select 1 from ods.b b where a.x = b.x)", "ods.a ods.b"),
    "union": ("select x from ods.a union all select x from ods.b except select x from ods.a", "ods.a ods.b"),
    "functions and generators": (
        "select q from ods.a lateral view explode(z) t as q union select id from range(5)",
        "ods.a",
    ),
    "values": ("select * from values (1, 2) as t(a, b)", ""),
    "text is no table": ("select 'from ods.x' as a /* from ods.y */ from ods.z -- ods.w", "ods.z"),
}


@pytest.mark.parametrize(("sql", "expected"), TABLES.values(), ids=TABLES)
def test_tables(sql: str, expected: str) -> None:
    assert list(dict.fromkeys(reference.name for reference in find_references(sql))) == expected.split()


def test_parameters() -> None:
    assert find_parameters("select x::int, ':no' from ods.a where a >= :low and b < :high and :low > 0") == (
        "low",
        "high",
    )


SAME = {
    "spaces": "select a,b\n\tfrom ods.x where c='it''s'",
    "comments": "/* runnel tags = ['x'] */ -- why\nselect a, b from /* here */ ods.x where c = 'it''s' -- end",
    "case of keywords": "SELECT a, b FROM ods.x WHERE c = 'it''s';",
}
OTHER = {
    "text": "select a, b from ods.x where c = 'It''s'",
    "name": "select A, b from ods.x where c = 'it''s'",
    "joined text": "select a, b from ods.x where c = 'it' 's'",
    "spaces in text": "select a, b from ods.x where c = 'it'' s'",
    "table": "select a, b from ods.y where c = 'it''s'",
    "order": "select b, a from ods.x where c = 'it''s'",
}


def test_what_counts_in_sql() -> None:
    plain = "select a, b from ods.x where c = 'it''s'"
    assert {normalize_sql(sql) for sql in SAME.values()} == {normalize_sql(plain)}
    assert all(normalize_sql(sql) != normalize_sql(plain) for sql in OTHER.values())
    assert normalize_sql("select 10L") != normalize_sql("select 10")
    assert normalize_sql("select a as END") != normalize_sql("select a as end")


WRONG = {
    "syntax": ("select *\nform ods.orders", "SQL_SYNTAX", "line 2"),
    "unfinished": ("select (1", "SQL_SYNTAX", "line 1"),
    "open text": ("select 'a", "SQL_SYNTAX", None),
    "empty": ("-- nothing", "SQL_SYNTAX", None),
    "two": ("select 1; select 2", "DECLARE_SQL", None),
    "insert": ("insert into ods.x select 1", "DECLARE_SQL", None),
    "create": ("create table ods.x as select 1", "DECLARE_SQL", None),
    "version": ("select * from ods.x version as of 3", "DECLARE_SQL", "line 1"),
}


@pytest.mark.parametrize(("sql", "code", "at"), WRONG.values(), ids=WRONG)
def test_sql_that_is_no_task(sql: str, code: str, at: str | None) -> None:
    with pytest.raises(Mistake) as caught:
        find_references(sql)
    assert (caught.value.code, caught.value.at) == (code, at)


def test_comments_at_the_top() -> None:
    text = '\n-- Sums of orders,\n-- by day\n/* runnel\nby = "day"\nparams = { low = 0 }\n*/\n-- not this\nselect 1'
    found = parse_header_comment(text)
    assert found.options == {"by": "day", "params": {"low": 0}}
    assert found.lines == {"by": 5, "params": 6}
    assert found.description == "Sums of orders,\nby day"
    assert parse_header_comment("/* running */ select 1").options == {}


def test_a_sql_task(project: Project) -> None:
    text = """\
        -- Sums of orders
        /* runnel
        tags = ["daily"]
        reference = ["orders"]
        checks = ["not_null(day)", "n >= 0", "accepted(kind, ['a', 'b'], on_fail='quarantine')"]
        params = { low = 0 }
        */
        select day, count(*) as n from ods.orders where amount >= :low group by day
    """
    flow = project.write({**ORDERS, "flows/dws/day.sql": text}).load("low=5")
    task = flow.tasks[TableName("dws", "day")]
    assert task.inputs == (("ods.orders", TableName("ods", "orders")),)
    assert (task.params, task.description, str(task.place)) == ((("low", 5),), "Sums of orders", "flows/dws/day.sql:8")
    assert task.options.reference == ("ods.orders",) and task.options.tags == ("daily",)
    assert [(check.kind, check.on_fail) for check in task.checks] == [
        ("not_null", "stop"),
        ("condition", "stop"),
        ("accepted", "quarantine"),
    ]


def test_a_sql_task_names_its_table(project: Project) -> None:
    flow = project.write({**ORDERS, "flows/x.sql": '/* runnel table = "dws.y" */ select * from ods.orders'}).load()
    assert list(flow.tasks) == [TableName("dws", "y")]


MISTAKES = {
    "no layer": ("flows/x.sql", "select 1", "DECLARE_SQL_TABLE: flows/x.sql is not in a folder"),
    "syntax": (
        "flows/d/x.sql",
        "select *\nform ods.orders",
        "SQL_SYNTAX: the SQL can't be read near 'ods'\n  at flows/d/x.sql:2",
    ),
    "one part": (
        "flows/d/x.sql",
        "select * from orders",
        "task `x` reads `orders`, which has no layer\n  at flows/d/x.sql:1\n  fix: write `ods.orders`",
    ),
    "unknown": (
        "flows/d/x.sql",
        "select * from ods.ordres",
        "task `x` reads `ods.ordres`, but no source or task makes it; close: `ods.orders`\n"
        "  at flows/d/x.sql:1\n  fix: write `ods.orders`",
    ),
    "toml": (
        "flows/d/x.sql",
        "/* runnel\nby = day\n*/ select 1",
        "are not valid TOML: Invalid value\n  at flows/d/x.sql:2",
    ),
    "option": (
        "flows/d/x.sql",
        "/* runnel\n\ntag = 'x'\n*/ select 1",
        "there is no option `tag`; close: `tags`\n  at flows/d/x.sql:3",
    ),
    "check": (
        "flows/d/x.sql",
        "/* runnel\nchecks = ['not_nul(x)']\n*/ select 1",
        "there is no check `not_nul`; close: `not_null`\n  at flows/d/x.sql:2",
    ),
    "parameter": (
        "flows/d/x.sql",
        "/* runnel\nparams = { low = 1 }\n*/ select :lw",
        "the SQL uses `:lw`, which has no default; close: `low`\n  at flows/d/x.sql:2",
    ),
    "table": (
        "flows/d/x.sql",
        "/* runnel table = 'X' */ select 1",
        "NAME_TABLE: 'X' is not a table name\n  at flows/d/x.sql:1",
    ),
}


@pytest.mark.parametrize(("file", "text", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_in_sql_tasks(project: Project, file: str, text: str, expected: str) -> None:
    shown = project.write({**ORDERS, file: text}).mistakes()
    assert expected in shown and "mistakes" not in shown
