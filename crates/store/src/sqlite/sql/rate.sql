-- Execution::claim and Control::administer, as far as rate limits go. The caller computes how far a bucket pays for jobs; PostgreSQL does
-- so within the claim, after it has locked the buckets.

-- fragment: limit
-- The columns of a rate limit; read by `Bucket::read`.
id, name, rate, per, burst, level, level_at, lifted

-- name: read
-- Reads a rate limit and its level, by number. Walks the primary key.
select {{limit}} from windlass_rate_limits where id = ?1

-- name: read_named
-- Reads a rate limit and its level, by name. Walks the unique index of names.
select {{limit}} from windlass_rate_limits where name = ?1

-- name: first_ready
-- Reads the first ?2 ready rows of one lane with a rate limit, by rank, and what each costs. Walks the primary key of ready, then of
-- jobs.
select r.rank, r.job, coalesce(j.rate_weight, 1)
from windlass_ready r join windlass_jobs j on j.id = r.job
where r.lane = ?1
order by r.rank, r.job
limit ?2

-- name: charge
-- Writes the level of a bucket. Walks the primary key.
update windlass_rate_limits set level = ?2, level_at = ?3 where id = ?1

-- name: set
-- Adds or changes a rate limit, and returns its number. Walks the unique index of names.
insert into windlass_rate_limits (name, rate, per, burst, level, level_at) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict (name) do update set rate = ?2, per = ?3, burst = ?4, level = ?5, level_at = ?6, lifted = 0
returning id

-- name: lift
-- Lifts a rate limit: its jobs cost nothing. Walks the primary key.
update windlass_rate_limits set lifted = 1 where id = ?1

-- name: waiting_queues
-- Lists the queues in which jobs wait for a rate limit. Reads the lanes, which are few, and the primary key of ready.
select distinct l.queue from windlass_lanes l
where l.rate_limit = ?1 and exists (select 1 from windlass_ready r where r.lane in (l.id, -l.id))
