-- Maintenance::fire_timers and Control::administer, as far as schedules go. Writes schedules, schedule_firings and schedule_misses. PostgreSQL
-- locks the schedules it fires, and skips those that another process fires.

-- fragment: schedule
-- The columns of a schedule; read by `ScheduleRow::read`.
id, spec, codec, input, next_at, last_job, paused_by

-- name: read_due
-- Reads schedules that are due, at most ?2. Walks schedules_next.
select {{schedule}} from windlass_schedules
where next_at <= ?1 and next_at is not null and paused_at is null
order by next_at
limit ?2

-- name: live_jobs
-- Whether a job is live. Walks the primary key of jobs.
select 1 from windlass_jobs where id = ?1 and state = 0

-- name: add_firing
-- Records what a schedule fired: a tick fires once.
insert into windlass_schedule_firings (schedule, tick, job) values (?1, ?2, ?3) on conflict do nothing

-- name: set_next
-- Sets the next tick and the last job of a schedule. Walks the primary key.
update windlass_schedules set next_at = ?2, last_job = ?3 where id = ?1

-- name: extend_miss
-- Adds missed ticks to the newest record of misses, if that has the same reason and nothing fired since. Walks primary keys.
update windlass_schedule_misses as misses set last = ?3, count = count + ?4, at_least = at_least or ?5
where schedule = ?1 and why = ?2
  and at = (select max(newest.at) from windlass_schedule_misses newest where newest.schedule = ?1)
  and not exists (select 1 from windlass_schedule_firings f where f.schedule = ?1 and f.tick > misses.last)

-- name: add_miss
-- Adds a record of missed ticks.
insert into windlass_schedule_misses (schedule, at, first, last, count, at_least, why) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (schedule, at) do update
set first = min(first, excluded.first), last = max(last, excluded.last), count = count + excluded.count,
    at_least = at_least or excluded.at_least, why = why || ', ' || excluded.why

-- name: pause_unreadable
-- Pauses a schedule that cannot be decoded. Walks the primary key.
update windlass_schedules set paused_at = ?2, paused_by = 'windlass', paused_note = ?3 where id = ?1

-- name: read
-- Reads one schedule. Walks the unique index of names.
select {{schedule}} from windlass_schedules where name = ?1

-- name: set
-- Adds or changes a schedule. Walks the unique index of names.
insert into windlass_schedules (name, spec, codec, input, next_at) values (?1, ?2, ?3, ?4, ?5)
on conflict (name) do update
set spec = excluded.spec, codec = excluded.codec, input = excluded.input, next_at = excluded.next_at

-- name: pause
-- Pauses or resumes (?2 is null) a schedule. Walks the primary key.
update windlass_schedules set paused_at = ?2, paused_by = ?3, paused_note = ?4, next_at = ?5 where id = ?1

-- name: drop
-- Deletes a schedule. PostgreSQL does it in one statement with the next two. Walks the primary key.
delete from windlass_schedules where id = ?1

-- name: drop_firings
-- Deletes the firings of a schedule. Walks the primary key.
delete from windlass_schedule_firings where schedule = ?1

-- name: drop_misses
-- Deletes the missed ticks of a schedule. Walks the primary key.
delete from windlass_schedule_misses where schedule = ?1
