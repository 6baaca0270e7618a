"""SQL of tasks reads views, and columns keep the qualifiers that Spark takes."""

import pytest

from runnel.declare.sql.view_substitution import replace_tables
from runnel.names import TableName

VIEWS = {TableName("ods", "orders"): "v1", TableName("dwd", "orders"): "v2", TableName("ods", "users"): "v3"}
CASES = {
    "the table's name": ("select orders.x, orders.* from ods.orders", "select orders.x, orders.* from v1 AS `orders`"),
    "its full name": ("select ods.orders.x from ods.orders", "select `orders`.x from v1 AS `orders`"),
    "a star of the full name": ("select ods.orders.* from ods.orders", "select `orders`.* from v1 AS `orders`"),
    "other case": ("select ODS.Orders.x from Ods.orders", "select `orders`.x from v1 AS `orders`"),
    "a field of a struct": (
        "select orders.a.b, ods.orders.a.b from ods.orders",
        "select orders.a.b, `orders`.a.b from v1 AS `orders`",
    ),
    "an alias stays": ("select o.x from ods.orders o", "select o.x from v1 o"),
    "an alias that is called as a layer": (
        "select ods.orders.x from ods.users as ods join ods.orders",
        "select ods.orders.x from v3 as ods join v1 AS `orders`",
    ),
    "joins": (
        "select * from ods.orders join ods.users on orders.u = users.id, dwd.orders o",
        "select * from v1 AS `orders` join v3 AS `users` on orders.u = users.id, v2 o",
    ),
    "two tables of one name": (
        "select 1 from ods.orders where exists (select 1 from dwd.orders where dwd.orders.id = ods.orders.id)",
        "select 1 from v1 AS `ods.orders` where exists "
        "(select 1 from v2 AS `dwd.orders` where `dwd.orders`.id = `ods.orders`.id)",
    ),
    "two tables of one name, each in its query": (
        "select orders.x from ods.orders union all select orders.y from dwd.orders",
        "select `ods.orders`.x from v1 AS `ods.orders` union all select `dwd.orders`.y from v2 AS `dwd.orders`",
    ),
    "a subquery of that name": (
        "select orders.x from (select * from ods.users) orders join ods.orders o join dwd.orders",
        "select orders.x from (select * from v3 AS `users`) orders join v1 o join v2 AS `orders`",
    ),
    "a sample takes its alias later": (
        "select * from ods.orders tablesample (10 rows)",
        "select * from v1 tablesample (10 rows)",
    ),
    "pivot": (
        "select * from ods.orders pivot (sum(x) for y in (1))",
        "select * from v1 AS `orders` pivot (sum(x) for y in (1))",
    ),
    "comments and strings stay": (
        "select  'ods.orders' -- ods.orders\nFROM ods.orders",
        "select  'ods.orders' -- ods.orders\nFROM v1 AS `orders`",
    ),
    "a table that is no input stays": ("select * from ods.other", "select * from ods.other"),
}


@pytest.mark.parametrize(("sql", "expected"), CASES.values(), ids=CASES)
def test_replace_tables(sql: str, expected: str) -> None:
    assert replace_tables(sql, VIEWS) == expected
