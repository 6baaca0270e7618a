"""Tables of real databases, read whole or by a watermark: each row once, changed and vanished ones too."""

from typing import Any

import pytest

from runnel.errors import Mistake
from tests.connect.jdbc.source_databases import Shop, feed_of
from tests.run.project import reasons

WHOLE = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders"))'
MARKED = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders", watermark="changed", key="id", overlap="1 hour"))'
KEYED = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders", key="id"))'
GROWING = 'rn.source("ods.orders", rn.jdbc("{url}", table="orders", watermark="id"))'
ONE, TWO, THREE = (1, "a", "2026-01-01 10:00:00"), (2, "b", "2026-01-01 11:00:00"), (3, "c", "2026-01-02 10:00:00")


def test_with_a_key_only_rows_that_differ_are_written(small: Shop) -> None:
    small.flow(KEYED)
    small.insert(ONE, TWO, THREE)
    small.run()
    small.execute("UPDATE orders SET name = 'z' WHERE id = 1")
    small.execute("DELETE FROM orders WHERE id = 2")
    assert [step.rows for step in small.project.run().steps] == [1]
    assert small.names == "cz"
    with small.project.open() as lake:
        lake.revert("main")
    small.insert((4, "d", None))
    small.run()
    assert small.names == "cdz"


@pytest.mark.parametrize("text", [KEYED, MARKED], ids=["key", "watermark"])
def test_rows_that_vanish_can_stay(shop: Shop, text: str) -> None:
    shop.execute("CREATE INDEX orders_changed ON orders (changed)")
    shop.flow(text[:-2] + ', removed="keep"))')
    shop.insert((1, "a", "2026-01-01"), (2, "b", "2026-01-02"))
    shop.run()
    shop.execute("DELETE FROM orders WHERE id = 1")
    shop.run()
    assert shop.names == "ab" and shop.run() == {}
    shop.insert((3, "c", "2026-01-03"))
    shop.execute("UPDATE orders SET name = 'B', changed = '2026-01-04' WHERE id = 2")
    shop.run()
    assert shop.names == "Bac" and shop.run() == {}


def test_an_index_of_the_watermark_changes_nothing_but_the_time(shop: Shop) -> None:
    shop.execute("CREATE INDEX orders_changed ON orders (changed)")
    shop.flow(MARKED)
    shop.insert((1, "a", "2026-01-01"), (2, "b", "2026-01-02"))
    shop.run()
    assert shop.run() == {}
    shop.insert((3, "c", "2026-01-03"))
    shop.execute("DELETE FROM orders WHERE id = 1")
    shop.run()
    assert shop.names == "bc" and shop.run() == {}
    shop.execute("DELETE FROM orders WHERE id = 3")
    shop.run()
    assert shop.names == "b" and shop.run() == {}


def test_a_late_row_within_the_overlap_is_found(shop: Shop) -> None:
    shop.flow(MARKED)
    shop.insert(ONE, TWO)
    shop.run()
    shop.insert((4, "late", "2026-01-01 10:30:00"))
    shop.run()
    assert shop.names == "ablate"
    shop.execute("UPDATE orders SET name = 'x' WHERE id = 2")
    shop.run()
    assert shop.names == "alatex"


def test_deleting_everything_empties_the_table(small: Shop) -> None:
    small.flow(MARKED)
    small.insert(ONE, TWO)
    small.run()
    small.execute("DELETE FROM orders")
    small.run()
    assert small.names == ""
    assert small.run() == {}
    small.insert(THREE)
    small.run()
    assert small.names == "c"


def test_without_a_key_rows_only_come(small: Shop) -> None:
    small.flow(GROWING)
    small.insert(ONE, TWO)
    small.run()
    small.execute("DELETE FROM orders WHERE id = 1")
    assert small.run() == {}
    small.insert(THREE)
    small.run()
    assert small.names == "abc"


def test_a_late_row_without_a_key_is_told(shop: Shop) -> None:
    shop.flow(GROWING)
    shop.insert(ONE, THREE)
    shop.run()
    shop.insert(TWO)
    error = shop.error()
    assert "SOURCE_LATE_ROWS: 1 row of orders came late: not after 3" in error and "flows/flow.py" in error
    shop.flow(GROWING[:-1] + ', on_bad="drop")')
    assert shop.run() == {}
    assert shop.names == "ac"


def test_an_empty_table_has_its_columns(small: Shop) -> None:
    small.flow(WHOLE)
    small.run()
    with small.project.open() as lake:
        assert lake.query("select * from ods.orders").columns == ["id", "name", "changed"]
    small.insert(ONE)
    small.run()
    assert small.names == "a"


def test_a_query_is_a_source_too(shop: Shop) -> None:
    query = "select id, upper(name) as name from orders where id < 3 -- some;"
    shop.flow(f'rn.source("ods.orders", rn.jdbc("{{url}}", query="{query}"))')
    shop.insert(ONE, TWO, THREE)
    shop.run()
    assert shop.rows() == [(1, "A"), (2, "B")]
    assert shop.run() == {}


def test_another_declaration_reads_everything_anew(small: Shop) -> None:
    small.flow(MARKED)
    small.insert(ONE, TWO)
    small.run()
    small.flow(MARKED.replace('table="orders"', 'query="select * from orders where id > 1"'))
    assert "declaration" in reasons(small.project.plan())["ods.orders"]
    small.run()
    assert small.names == "b"


def test_a_new_column_is_filled_for_all_rows(shop: Shop) -> None:
    shop.flow(MARKED)
    shop.insert(ONE, TWO)
    shop.run()
    shop.execute("ALTER TABLE orders ADD COLUMN color text DEFAULT 'red'")
    shop.run()
    assert [row[3] for row in shop.rows()] == ["red", "red"]


def test_a_new_column_follows_the_policy(small: Shop) -> None:
    small.flow(WHOLE[:-1] + ', on_new_column="stop")')
    small.insert(ONE)
    small.run()
    small.execute("ALTER TABLE orders ADD COLUMN color text DEFAULT 'red'")
    assert "`color`" in small.error()


POLICIES = {"stop": "", "drop": ', on_bad="drop"', "quarantine": ', on_bad="quarantine"'}


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_without_a_watermark(small: Shop, policy: str) -> None:
    small.flow(MARKED[:-1] + POLICIES[policy] + ")")
    small.insert(ONE, (2, "b", None))
    if policy == "stop":
        assert "SOURCE_NO_WATERMARK: 1 row of orders have no `changed`" in small.error()
        return
    small.run()
    assert small.names == "a"
    if policy == "quarantine":
        ((raw, reason, *_),) = small.rows("quarantine.ods_orders")
        assert '"name": "b"' in raw and "the watermark, is null" in reason
        assert small.run() == {}
    small.execute("UPDATE orders SET changed = '2026-01-05 10:00:00' WHERE id = 2")
    small.run()
    assert small.names == "ab"


def test_a_key_that_is_none(small: Shop) -> None:
    small.flow(MARKED.replace('key="id"', 'key="name"'))
    small.insert(ONE, (2, "a", "2026-01-01 10:00:00"))
    assert "the key of orders does not identify its rows: 2 have name = 'a'" in small.error()


MISTAKES = {
    "no table": ({"table": "ordres"}, "there is no table `ordres`", "close: `orders`"),
    "wrong query": ({"query": "select frm orders"}, "can't run the query", "correct query="),
    "no watermark": ({"watermark": "chnged"}, "`watermark` names `chnged`", "close: `changed`"),
    "no key": ({"key": ("nr",)}, "`key` names `nr`", "its columns: id, name, changed"),
}


@pytest.mark.parametrize(("given", "told", "more"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told(shop: Shop, given: dict[str, Any], told: str, more: str) -> None:
    with pytest.raises(Mistake) as raised:
        feed_of(shop, **given).find_changes(None)
    text = str(raised.value)
    assert told in text and more in text and "flows/flow.py:3" in text


@pytest.mark.parametrize("name", ["runnel_view", "runnel_sum", "runnel_keys"])
def test_a_table_may_be_called_like_anything_of_ours(small: Shop, name: str) -> None:
    small.insert(ONE, TWO)
    small.execute(f"ALTER TABLE orders RENAME TO {name}")
    small.flow(f'rn.source("ods.orders", rn.jdbc("{{url}}", table="{name}", key="id"))')
    small.run()
    assert small.names == "ab"


def test_a_table_of_300_columns(lite: Shop) -> None:
    names = [f"c{number}" for number in range(299)]
    lite.execute(f"CREATE TABLE orders (id integer PRIMARY KEY, {', '.join(f'{name} text' for name in names)})")
    lite.flow(WHOLE)
    lite.insert((1, *names), (2, *(name.upper() for name in names)))
    lite.run()
    assert sorted(lite.rows()) == [(1, *names), (2, *(name.upper() for name in names))]
    assert lite.run() == {}
    lite.execute("UPDATE orders SET c298 = CASE id WHEN 1 THEN 'C298' ELSE 'c298' END")  # swapped between two rows
    lite.run()
    assert sorted(row[-1] for row in lite.rows() if row[0] == 1) == ["C298"]
