-- Execution::claim and Control::administer, as far as rate limits go. A claim locks the buckets it charges by id, and charges them by the
-- statement claim.rate_limited_lanes.

-- name: lock
-- Locks the buckets of a claim by id, so that what it charges is exact. A statement of its own: the next one sees what the claim before
-- has charged. Walks the primary key.
select id from rate_limits where id = any($1::int4[]) order by id for update

-- fragment: limit
-- The columns of a rate limit; read by `Bucket::read`.
id, name, rate, per, burst, level, level_at, lifted

-- name: read
-- Reads rate limits by name; all of them if $1 is null. Reads the whole table, which is short.
select {{limit}} from rate_limits where $1::text[] is null or name = any($1) order by name collate "C"

-- name: lock_named
-- Locks a rate limit and reads it. Walks the unique index of names.
select {{limit}} from rate_limits where name = $1 for update

-- name: set
-- Adds or changes a rate limit. Walks the unique index of names.
insert into rate_limits (name, rate, per, burst, level, level_at) values ($1, $2, $3, $4, $5, $6)
on conflict (name) do update
set rate = excluded.rate, per = excluded.per, burst = excluded.burst, level = excluded.level, level_at = excluded.level_at, lifted = false

-- name: lift
-- Lifts a rate limit, unless it is lifted: its jobs cost nothing. Walks the unique index of names.
update rate_limits set lifted = true where name = $1 and not lifted

-- name: bump_gates
-- Moves the gates of the queues in which jobs wait for a rate limit. Reads the lanes, which are few, and the primary key of ready.
insert into gates (queue, writer, version)
select l.queue, $2::int8, {{gates.first_version}} from lanes l join rate_limits b on b.id = l.rate_limit
where b.name = $1 and (exists (select from ready r where r.lane = l.id) or exists (select from ready r where r.lane = -l.id))
group by l.queue
{{gates.or_raise}}
