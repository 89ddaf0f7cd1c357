-- How many jobs wait for each rate limit, up to 10,000.
select b.name, (
    select count(*) from (
        select 1 from lanes l
        cross join lateral (
            (select 1 from ready r where r.lane = l.id limit 10000)
            union all
            (select 1 from ready r where r.lane = -l.id limit 10000)
        ) w
        where l.bucket = b.id limit 10000
    ) s)
from buckets b
