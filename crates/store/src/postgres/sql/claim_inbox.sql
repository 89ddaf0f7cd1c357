-- The signals that claimed jobs wait for, oldest first: of each name the oldest, or all of it ($2 says so for each job and
-- name in $1 and $3), but for those that were set aside. For jobs of which a claim did not read them along. Walks the primary key
-- of signals.
select s.job, s.number, s.name, s.at, s.codec, s.payload
from unnest($1::uuid[], $3::text[], $2::bool[]) as w (job, name, every)
cross join lateral (
    select s.job, s.number, s.name, s.at, s.codec, s.payload from signals s
    where s.job = w.job and s.name = w.name and s.aside is null order by s.number limit case when w.every then null else 1 end
) s
order by s.job, s.number
