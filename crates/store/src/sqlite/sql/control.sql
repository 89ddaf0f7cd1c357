-- Control::act_on_jobs and update_stages: writes jobs, paused_jobs, cancel_requests and audit_log, job by job. PostgreSQL locks all jobs
-- of a call by id first, and then writes them in batches.

-- name: read_job
-- Reads a job's placement, and all that decides what may be done to it. Walks primary keys.
select {{common.placement(j.)}}, j.state, j.epoch, j.kind, j.submitted_at, j.digest,
       {{common.in_ready(?2)}}, {{common.in_serial_waiting}}, {{common.in_timers}},
       j.settings, j.rev, j.has_undo is not null and j.unwind is null
from windlass_jobs j where j.id = ?1

-- name: cancel
-- Ends a live job as cancelled: its epoch is raised, so that a running attempt is fenced. Walks the primary key.
update windlass_jobs
set state = 3, unsuccessful_state = 3, epoch = epoch + 1, failure = ?2, finished_at = ?3, hold = null, parked = null,
    error_class = {{common.error_class(?2)}}
where id = ?1 and state = 0

-- name: request_cancel
-- Requests the running attempt of a job to end, unless that was requested before.
insert into windlass_cancel_requests (job, worker, epoch, deadline_at, author, note) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict do nothing

-- name: take_cancel_request
-- Deletes a job's cancel request and returns it. Walks the primary key.
delete from windlass_cancel_requests where job = ?1
returning deadline_at, author, note

-- name: pause
-- Records who paused a job.
insert into windlass_paused_jobs (job, at, author, note) values (?1, ?2, ?3, ?4)

-- name: resume
-- Deletes that record. Walks the primary key.
delete from windlass_paused_jobs where job = ?1

-- name: hold_reasons
-- Reads why a job is held: whether a cancel was requested, and who paused it. Walks primary keys.
select exists (select 1 from windlass_cancel_requests where job = ?1), (select author from windlass_paused_jobs where job = ?1)

-- name: set_hold
-- Sets whether a job is to be held when it would next be ready (1), is held (2), or neither (null). Walks the primary key.
update windlass_jobs set hold = ?2 where id = ?1

-- name: set_held
-- Holds a job that would be ready otherwise. Walks the primary key.
update windlass_jobs set hold = 2 where id = ?1

-- name: revive
-- Revives a failed or cancelled job: resets its counters, raises its epoch, and makes it due now. Walks the primary key.
update windlass_jobs
set state = 0, unsuccessful_state = null, error_class = null, reason = null, finished_at = null, attempts = 0, worker_deaths = 0, solo_crashes = 0, suspect = 0,
    retry_counts = null, steps_since_wait = 0, epoch = epoch + 1, due_at = ?2,
    serial_position = case when serial_key is null then serial_position else ?2 end, deadline_at = ?3, unwind = null
where id = ?1

-- name: start_unwind
-- Starts to unwind a job instead of ending it: resets its counters, raises its epoch (a running attempt is fenced), ends its wait and
-- its hold, and makes it due now. Walks the primary key.
update windlass_jobs
set unwind = ?2, due_at = ?3, failure = coalesce(?4, failure), epoch = epoch + 1, attempts = 0, retry_counts = null, worker_deaths = 0,
    solo_crashes = 0, suspect = 0, hold = null, parked = null, wait = null, wait_until = null
where id = ?1

-- name: set_priority
-- Sets the priority of a job. Walks the primary key.
update windlass_jobs set priority = ?2 where id = ?1

-- name: update_stage
-- Gives a machine another lane, stage and data, and raises its epoch. Walks the primary key.
update windlass_jobs
set lane = ?2, epoch = epoch + 1, stage = ?3, data_codec = ?4, data = ?5, external_payloads = {{common.data_is_external(?6)}}
where id = ?1

-- name: write_audit
-- Adds an entry to the audit log.
insert into windlass_audit_log (at, author, action, subject, note) values (?1, ?2, ?3, ?4, ?5)
