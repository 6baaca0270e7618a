"""Tasks on a handful of rows: what is declared gives the rows their types, what a row leaves out is null."""

from flows.orders import paid_orders, seller_day

import runnel as rn

MONDAY = "2026-01-05"


def test_cancelled_orders_do_not_count():
    made = rn.testing.run(
        paid_orders,
        orders=[
            {"order_id": 1, "status": "paid", "amount": "5.00"},
            {"order_id": 2, "status": "cancelled", "amount": "7.00"},
        ],
    )
    assert [row["order_id"] for row in made.rows] == [1]


def test_an_amount_below_zero_is_set_aside():
    made = rn.testing.run(paid_orders, orders=[{"order_id": 1, "status": "paid", "amount": "-5.00"}])
    assert list(made.failed) == ["amount > 0"]


def test_small_orders_can_be_left_out():
    orders = [
        {"order_id": 1, "seller_id": 10, "day": MONDAY, "amount": "5.00"},
        {"order_id": 2, "seller_id": 10, "day": MONDAY, "amount": "0.50"},
    ]
    assert rn.testing.run(seller_day, paid_orders=orders, min_amount=1).plain == [
        {"seller_id": 10, "day": MONDAY, "revenue": "5.00", "orders": 1}
    ]


def test_the_largest_seller_comes_first():
    made = rn.testing.run(
        "flows/ads/top_sellers.sql",
        seller_day=[
            {"seller_id": 10, "day": MONDAY, "revenue": 5},
            {"seller_id": 11, "day": MONDAY, "revenue": 9},
        ],
        sellers=[{"seller_id": 10, "name": "Aurora Books"}, {"seller_id": 11, "name": "Bergamot"}],
    )
    assert {row["name"]: row["place"] for row in made.rows} == {"Bergamot": 1, "Aurora Books": 2}
