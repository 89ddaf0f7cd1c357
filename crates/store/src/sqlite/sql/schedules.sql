-- name: live_jobs
-- Whether a job has not ended.
select 1 from windlass_jobs where id = ?1 and state = 0

-- name: drop
-- Forgets a schedule. PostgreSQL does it in one statement with the next two.
delete from windlass_schedules where id = ?1

-- name: drop_firings
-- Forgets what a schedule fired.
delete from windlass_schedule_firings where schedule = ?1

-- name: drop_misses
-- Forgets what a schedule missed.
delete from windlass_schedule_misses where schedule = ?1

-- name: take_due
-- Schedules that are due, a bounded batch. Walks schedules_next.
select id, spec, codec, input, next_at, last_job, paused_by from windlass_schedules
where next_at <= ?1 and next_at is not null and paused_at is null
order by next_at
limit ?2

-- name: add_firing
-- Notes what a schedule fired: a tick fires once.
insert into windlass_schedule_firings (schedule, tick, job) values (?1, ?2, ?3) on conflict do nothing

-- name: extend_miss
-- Adds missed ticks to the last summary of the same reason, if nothing fired since.
update windlass_schedule_misses as misses set last = ?3, count = count + ?4, at_least = at_least or ?5
where schedule = ?1 and why = ?2
  and at = (select max(o.at) from windlass_schedule_misses o where o.schedule = ?1)
  and not exists (select 1 from windlass_schedule_firings f where f.schedule = ?1 and f.tick > misses.last)

-- name: add_miss
-- Makes a summary of missed ticks.
insert into windlass_schedule_misses (schedule, at, first, last, count, at_least, why) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (schedule, at) do update
set first = min(first, excluded.first), last = max(last, excluded.last), count = count + excluded.count,
    at_least = at_least or excluded.at_least, why = why || ', ' || excluded.why

-- name: read
-- One schedule.
select id, spec, codec, input, next_at, last_job, paused_by from windlass_schedules where name = ?1

-- name: set_next
-- Moves a schedule on.
update windlass_schedules set next_at = ?2, last_job = ?3 where id = ?1

-- name: pause
-- Lets a schedule rest, or takes that back.
update windlass_schedules set paused_at = ?2, paused_by = ?3, paused_note = ?4, next_at = ?5 where id = ?1

-- name: set
-- Makes or changes a schedule.
insert into windlass_schedules (name, spec, codec, input, next_at) values (?1, ?2, ?3, ?4, ?5)
on conflict (name) do update
set spec = excluded.spec, codec = excluded.codec, input = excluded.input, next_at = excluded.next_at

-- name: pause_unreadable
-- Lets a schedule rest that cannot be read.
update windlass_schedules set paused_at = ?2, paused_by = 'windlass', paused_note = ?3 where id = ?1
