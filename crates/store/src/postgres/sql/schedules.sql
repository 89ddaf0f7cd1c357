-- Maintenance::fire_timers and Control::administer, as far as schedules go. Writes schedules, schedule_firings and schedule_misses. Locks the schedules
-- that are fired, before jobs, and skips those that another process fires.

-- fragment: due(now)
-- Schedules that are due, at most $2. Walks schedules_next.
select id, spec, codec, input, next_at, last_job from schedules
where next_at <= {{now}} and next_at is not null and paused_at is null
order by next_at
limit $2

-- name: read_due
-- Reads schedules that are due, before lock_due locks them: the names of their jobs are given numbers in between.
{{due({{common.now}})}}

-- name: lock_due
-- Locks schedules that are due. Skips those that another process fires.
{{due($1)}}
for update skip locked

-- name: live_jobs
-- Lists which of some jobs are live. Walks the primary key of jobs.
select id from jobs where id = any($1::uuid[]) and state = 0

-- name: add_firing
-- Records what schedules fired: a tick fires once.
insert into schedule_firings (schedule, tick, job)
select * from unnest($1::int4[], $2::int8[], $3::uuid[]) on conflict do nothing

-- name: set_next
-- Sets the next ticks and the last jobs of schedules. Walks the primary key.
update schedules s set next_at = n.next_at, last_job = coalesce(n.last_job, s.last_job)
from unnest($1::int4[], $2::int8[], $3::uuid[]) as n (id, next_at, last_job)
where s.id = n.id

-- name: extend_miss
-- Adds missed ticks to the newest record of misses, if that has the same reason and nothing fired since. Walks primary keys.
update schedule_misses m set last = $3::int8, count = m.count + $4::int8, at_least = m.at_least or $5::bool
where m.schedule = $1::int4 and m.why = $2::text
  and m.at = (select max(newest.at) from schedule_misses newest where newest.schedule = $1)
  and not exists (select from schedule_firings f where f.schedule = $1 and f.tick > m.last)

-- name: add_miss
-- Adds a record of missed ticks.
insert into schedule_misses (schedule, at, first, last, count, at_least, why) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (schedule, at) do update
set first = least(schedule_misses.first, excluded.first), last = greatest(schedule_misses.last, excluded.last),
    count = schedule_misses.count + excluded.count, at_least = schedule_misses.at_least or excluded.at_least,
    why = schedule_misses.why || ', ' || excluded.why

-- name: pause_unreadable
-- Pauses a schedule that cannot be decoded. Walks the primary key.
update schedules set paused_at = {{common.now}}, paused_by = 'windlass', paused_note = $3::text where id = $2

-- name: lock
-- Locks one schedule and reads it. Walks the unique index of names.
select id, spec, codec, input, next_at, last_job, paused_by from schedules where name = $1 for update

-- name: set
-- Adds or changes a schedule. Walks the unique index of names.
insert into schedules (name, spec, codec, input, next_at) values ($1, $2, $3, $4, $5)
on conflict (name) do update
set spec = excluded.spec, codec = excluded.codec, input = excluded.input, next_at = excluded.next_at

-- name: pause
-- Pauses or resumes ($2 is null) a schedule, which is locked. Walks the primary key.
update schedules set paused_at = $2::int8, paused_by = $3::text, paused_note = $4::text, next_at = $5::int8
where id = $1

-- name: drop
-- Deletes a schedule with its firings and misses, and returns how many it deleted. Walks the unique index of names and primary keys.
with deleted as (
    delete from schedules where name = $1 returning id
), deleted_firings as (
    delete from schedule_firings f using deleted d where f.schedule = d.id
), deleted_misses as (
    delete from schedule_misses m using deleted d where m.schedule = d.id
)
select count(*) from deleted
