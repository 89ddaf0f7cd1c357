-- name: set_held
-- Sets a job aside that would be ready otherwise. PostgreSQL does it within the statements that put jobs back.
update windlass_jobs set hold = 2 where id = ?1

-- name: cancel
-- Ends a job by request: whoever runs it is fenced.
update windlass_jobs
set state = 3, unsuccessful_state = 3, epoch = epoch + 1, failure = ?2, finished_at = ?3, hold = null, parked = null
where id = ?1 and state = 0

-- name: hold_reasons
-- Why a job is held: whether it was told to end, and who paused it.
select exists (select 1 from windlass_cancel_requests where job = ?1), (select author from windlass_paused_jobs where job = ?1)

-- name: set_hold
-- Says whether a job is to be set aside when it would next be ready (1), is aside (2), or neither (null).
update windlass_jobs set hold = ?2 where id = ?1

-- name: read_job
-- A job as far as its place goes, and all that decides what may be done to it. Walks primary keys.
select j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial_key, j.serial_position, j.parked,
       case when j.parent_rev is not null then j.parent end, j.parent_rev = -1, j.branch is not null or j.has_branches is not null,
       j.state, j.epoch, j.kind, j.submitted_at, j.digest,
       exists (select 1 from windlass_ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?2 and r.job = j.id),
       exists (select 1 from windlass_serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       j.settings, j.rev, j.has_undo is not null and j.unwind is null
from windlass_jobs j where j.id = ?1

-- name: pause
-- Notes who paused a job.
insert into windlass_paused_jobs (job, at, author, note) values (?1, ?2, ?3, ?4)

-- name: priority
-- Gives a job another priority.
update windlass_jobs set priority = ?2 where id = ?1

-- name: update_stage
-- Gives a machine another version, stage and data. Whoever had it claimed before is fenced.
update windlass_jobs
set lane = ?2, epoch = epoch + 1, stage = ?3, data_codec = ?4, data = ?5,
    external_payloads = case when ?6 then coalesce(external_payloads, 0) | 4 else nullif(external_payloads & 3, 0) end
where id = ?1

-- name: resume
-- Forgets that a job is paused.
delete from windlass_paused_jobs where job = ?1

-- name: revive
-- Revives a failed or cancelled job with its counters reset: it is due now.
update windlass_jobs
set state = 0, unsuccessful_state = null, reason = null, finished_at = null, attempts = 0, worker_deaths = 0, solo_crashes = 0, suspect = 0,
    retry_counts = null, steps_since_wait = 0, epoch = epoch + 1, due_at = ?2, serial_position = case when serial_key is null then serial_position else ?2 end,
    deadline_at = ?3, unwind = null
where id = ?1

-- name: request_cancel
-- Tells the attempt of a running job to end, unless it was told before.
insert into windlass_cancel_requests (job, worker, epoch, deadline_at, author, note) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict do nothing

-- name: unwind
-- Has a job unwound that was to be ended from outside: it is due now, its counters start anew, and nothing keeps it. Whoever
-- runs it is fenced.
update windlass_jobs
set unwind = ?2, due_at = ?3, failure = coalesce(?4, failure), epoch = epoch + 1, attempts = 0, retry_counts = null, worker_deaths = 0,
    solo_crashes = 0, suspect = 0, hold = null, parked = null, wait = null, wait_until = null
where id = ?1

-- name: write_audit
-- Adds an entry to the audit log.
insert into windlass_audit_log (at, author, action, subject, note) values (?1, ?2, ?3, ?4, ?5)

-- name: forget_cancel_request
-- Forgets that a job was told to end.
delete from windlass_cancel_requests where job = ?1
returning deadline_at, author, note
