-- All rate limits with what is in their buckets, and how many jobs wait for each, up to 10,000.
select b.id, b.name, b.rate, b.per, b.burst, b.level, b.at, b.lifted,
       (select count(*) from (select 1 from windlass_lanes l join windlass_ready r on r.lane in (l.id, -l.id)
                              where l.bucket = b.id limit 10000))
from windlass_buckets b order by b.name
