-- Revenue of each seller per day. `runnel run --set min_amount=10` leaves out small orders.
/* runnel
tags = ["daily"]
params = { min_amount = 0.0 }
*/
select s.name, o.day, sum(o.amount) as revenue, count(*) as orders
from dwd.paid_orders o
join ods.sellers s on s.seller_id = o.seller_id
where o.amount >= :min_amount
group by s.name, o.day
