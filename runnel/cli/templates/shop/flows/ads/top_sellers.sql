-- Sellers by revenue, the largest first. The folder and the file name the table: ads.top_sellers.
/* runnel
checks = ["unique(name)"]
*/
select
  rank() over (order by sum(d.revenue) desc) as place,
  s.name,
  s.city,
  sum(d.revenue) as revenue
from dws.seller_day d
join ods.sellers s on s.seller_id = d.seller_id
group by s.name, s.city
