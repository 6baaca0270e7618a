-- Orders that were not cancelled. Each row comes from one row of ods.orders, so only new rows are computed.
/* runnel
rowwise = true
key = "order_id"
checks = ["not_null(order_id)", "unique(order_id)", "check('amount > 0', on_fail='quarantine')"]
*/
select order_id, seller_id, day, amount
from ods.orders
where status <> 'cancelled'
