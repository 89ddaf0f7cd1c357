-- name: live_jobs
-- Which of some jobs have not ended.
select id from jobs where id = any($1::uuid[]) and state = 0

-- name: drop
-- Forgets a schedule, with what it fired and missed.
with gone as (
    delete from schedules where name = $1 returning id
), unfired as (
    delete from schedule_firings f using gone g where f.schedule = g.id
), unmissed as (
    delete from schedule_misses m using gone g where m.schedule = g.id
)
select count(*) from gone

-- name: take_due
-- Locks schedules that are due, a bounded batch; passes over those that another process is firing.
select id, spec, codec, input, next_at, last_job from schedules
where next_at <= $1 and next_at is not null and paused_at is null
order by next_at
limit $2
for update skip locked

-- name: add_firing
-- Notes what schedules fired: a tick fires once.
insert into schedule_firings (schedule, tick, job)
select * from unnest($1::int4[], $2::int8[], $3::uuid[]) on conflict do nothing

-- name: lock
-- Locks one schedule and reads it.
select id, spec, codec, input, next_at, last_job, paused_by from schedules where name = $1 for update

-- name: extend_miss
-- Adds missed ticks to the last summary of the same reason, if nothing fired since.
update schedule_misses m set last = $3::int8, count = m.count + $4::int8, at_least = m.at_least or $5::bool
where m.schedule = $1::int4 and m.why = $2::text
  and m.at = (select max(o.at) from schedule_misses o where o.schedule = $1)
  and not exists (select from schedule_firings f where f.schedule = $1 and f.tick > m.last)

-- name: add_miss
-- Makes a summary of missed ticks.
insert into schedule_misses (schedule, at, first, last, count, at_least, why) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (schedule, at) do update
set first = least(schedule_misses.first, excluded.first), last = greatest(schedule_misses.last, excluded.last),
    count = schedule_misses.count + excluded.count, at_least = schedule_misses.at_least or excluded.at_least,
    why = schedule_misses.why || ', ' || excluded.why

-- name: set_next
-- Moves schedules on.
update schedules s set next_at = n.next_at, last_job = coalesce(n.last_job, s.last_job)
from unnest($1::int4[], $2::int8[], $3::uuid[]) as n (id, next_at, last_job)
where s.id = n.id

-- name: pause
-- Lets a schedule rest, or takes that back.
update schedules set paused_at = $2::int8, paused_by = $3::text, paused_note = $4::text, next_at = $5::int8
where id = $1

-- name: peek
-- Schedules that are due, a bounded batch, as schedules.take_due locks them a moment later.
select id, spec, codec, input, next_at, last_job from schedules
where next_at <= coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8)
  and next_at is not null and paused_at is null
order by next_at
limit $2

-- name: set
-- Makes or changes a schedule.
insert into schedules (name, spec, codec, input, next_at) values ($1, $2, $3, $4, $5)
on conflict (name) do update
set spec = excluded.spec, codec = excluded.codec, input = excluded.input, next_at = excluded.next_at

-- name: pause_unreadable
-- Lets a schedule rest that cannot be read.
update schedules set paused_at = coalesce($2::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), paused_by = 'windlass',
    paused_note = $3::text
where id = $1
