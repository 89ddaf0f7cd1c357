-- name: lock
-- Locks the buckets of a claim, by id, so that what it charges is exact. A statement of its own: the next one sees what
-- the claim before it took.
select id from rate_limits where id = any($1::int4[]) order by id for update

-- name: set
-- Makes or changes a rate limit.
insert into rate_limits (name, rate, per, burst, level, level_at) values ($1, $2, $3, $4, $5, $6)
on conflict (name) do update
set rate = excluded.rate, per = excluded.per, burst = excluded.burst, level = excluded.level, level_at = excluded.level_at, lifted = false

-- name: bump_gates
-- Moves the gates of the queues in which jobs wait for a rate limit.
insert into gates (queue, writer, version)
select l.queue, $2::int8, (random() * 1e12)::int8 from lanes l join rate_limits b on b.id = l.rate_limit
where b.name = $1 and (exists (select from ready r where r.lane = l.id) or exists (select from ready r where r.lane = -l.id))
group by l.queue
on conflict (queue, writer) do update set version = gates.version + 1

-- name: lock_named
-- Locks a rate limit and reads it.
select id, name, rate, per, burst, level, level_at, lifted from rate_limits where name = $1 for update

-- name: read
-- Rate limits by name; all of them for null.
select id, name, rate, per, burst, level, level_at, lifted from rate_limits where $1::text[] is null or name = any($1) order by name collate "C"

-- name: lift
-- Lets the jobs of a rate limit pass.
update rate_limits set lifted = true where name = $1 and not lifted
