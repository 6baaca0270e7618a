"""Tasks on a handful of rows: what is declared gives the rows their types, what a row leaves out is null."""

import runnel as rn


def test_cancelled_orders_do_not_count():
    orders = [{"order_id": 1, "status": "paid"}, {"order_id": 2, "status": "cancelled"}]
    made = rn.testing.run("flows/dwd/paid_orders.sql", orders=orders)
    assert [row["order_id"] for row in made.rows] == [1]


def test_revenue_per_day():
    made = rn.testing.run(
        "flows/dws/seller_day.sql",
        paid_orders=[
            {"seller_id": 10, "day": "2026-01-05", "amount": 5},
            {"seller_id": 10, "day": "2026-01-05", "amount": 2},
        ],
        sellers=[{"seller_id": 10, "name": "Aurora Books"}],
    )
    assert made.rows == [{"name": "Aurora Books", "day": "2026-01-05", "revenue": 7, "orders": 2}]
