-- The first places of one lane with a rate limit, by rank, and what each costs. Walks the primary key of ready, then
-- of jobs.
select r.rank, r.job, coalesce(j.weight, 1)
from windlass_ready r join windlass_jobs j on j.id = r.job
where r.lane = ?1
order by r.rank, r.job
limit ?2
