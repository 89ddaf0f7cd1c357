-- name: read
-- A rate limit and what is in its bucket, by number.
select id, name, rate, per, burst, level, level_at, lifted from windlass_rate_limits where id = ?1

-- name: charge
-- Writes what is left in a bucket.
update windlass_rate_limits set level = ?2, level_at = ?3 where id = ?1

-- name: first_ready
-- The first places of one lane with a rate limit, by rank, and what each costs. Walks the primary key of ready, then
-- of jobs.
select r.rank, r.job, coalesce(j.rate_weight, 1)
from windlass_ready r join windlass_jobs j on j.id = r.job
where r.lane = ?1
order by r.rank, r.job
limit ?2

-- name: read_named
-- A rate limit and what is in its bucket, by name.
select id, name, rate, per, burst, level, level_at, lifted from windlass_rate_limits where name = ?1

-- name: lift
-- Lifts a rate limit: its jobs pass.
update windlass_rate_limits set lifted = 1 where id = ?1

-- name: set
-- Makes or changes a rate limit.
insert into windlass_rate_limits (name, rate, per, burst, level, level_at) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (name) do update set rate = ?2, per = ?3, burst = ?4, level = ?5, level_at = ?6, lifted = 0
returning id

-- name: queues_waiting
-- Queues in which jobs wait for a rate limit.
select distinct l.queue from windlass_lanes l
where l.rate_limit = ?1 and exists (select 1 from windlass_ready r where r.lane in (l.id, -l.id))
