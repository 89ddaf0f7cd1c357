-- Control::act_on_jobs and update_stages, and all that cancels or unwinds jobs. Writes jobs, paused_jobs, cancel_requests, timers, ready
-- and audit_log. Locks jobs by id first (lock_jobs, with the parents that count them), then their serial keys
-- (serial.lock_keys_of_jobs), then takes them out of the ready set: after that nobody else moves them. SQLite acts on one job after
-- the other.

-- name: lock_jobs
-- Locks jobs, and the parents whose waits count them, by id, and reads all that acting on them needs: which of them were asked for, which
-- must be unwound before they end, and the branches they are in. Walks the primary key.
select j.id, j.lane, j.priority, j.state, j.due_at, j.suspect, j.serial_key, j.hold, j.epoch, j.settings, j.kind, {{common.is_parked}}, j.rev,
       j.parent_rev is not null, j.id = any($1), {{common.has_undo}}, {{common.branch_child}}
from jobs j
where j.id = any {{common.with_parents}}
order by j.id for update

-- name: remove_ready
-- Removes jobs from the ready set, wherever their ranks place them, and returns which were there: nobody has claimed those. A statement of
-- its own, after the jobs and their serial keys are locked: it must see a row that was being inserted while those waited. Walks the
-- primary key of ready.
delete from ready r using unnest($1::int4[], $2::int8[], $3::uuid[]) as x (lane, rank, job)
where r.lane = x.lane and r.rank = x.rank and r.job = x.job
returning r.job

-- name: read_placements
-- Reads where locked jobs are: whether they wait for their serial key or a time, who paused them, and whether a cancel was requested. A
-- statement of its own, after the jobs and their serial keys are locked. Walks primary keys.
select j.id, {{common.in_serial_waiting}}, {{common.in_timers}},
       (select p.author from paused_jobs p where p.job = j.id),
       exists (select 1 from cancel_requests r where r.job = j.id)
from jobs j where j.id = any($1::uuid[])

-- name: read_state
-- Reads the state of a job and what decides whether it holds its unique name, without locking or moving it. Walks primary keys. $1 is
-- the span by which priority moves the rank.
select j.id, j.state, {{common.is_ready($1)}}, {{common.in_timers}}, j.submitted_at, j.settings, j.digest, {{common.is_parked}}
from jobs j where j.id = $2::uuid

-- name: lanes_of_jobs
-- Reads the lanes of jobs. Walks the primary key.
select id, lane from jobs where id = any($1::uuid[])

-- fragment: delete_holds(jobs)
-- Deletes the pauses and cancel requests of the jobs that a CTE lists. Walks primary keys.
deleted_pauses as (
    delete from paused_jobs p using {{jobs}} held where p.job = held.id
), deleted_requests as (
    delete from cancel_requests r using {{jobs}} held where r.job = held.id returning r.job, r.deadline_at
)

-- name: clear_holds
-- Deletes the pauses and cancel requests of jobs that have ended, with their timers. A job that was revived since is left alone. Skips
-- timers that another process is firing; they find nothing to do. Walks primary keys.
with ended as materialized (
    select j.id from jobs j where j.id = any($1::uuid[]) and j.state <> 0
), {{delete_holds(ended)}}
{{timers.delete_unlocked(deleted_requests r join timers t on t.due_at = r.deadline_at and t.job = r.job and t.purpose = 2)}}

-- name: cancel
-- Ends live jobs, which are locked, as cancelled: raises their epochs, so that running attempts are fenced. Deletes their timers, pauses and
-- cancel requests, skipping timers that another process is firing. $4 is the writer of counts. Returns those that are children or have branches: whether a wait of
-- their parent counts them, whether they have branches, and the branches they are in. Walks primary keys.
with old as materialized (
    select j.id, j.lane, j.stage, {{rollups.branch_of_job}}, {{counts.old_location}} from jobs j where j.id = any($1::uuid[]) and j.state = 0
), counted_jobs as (
    {{counts.left_live($4, 0, count(*), old)}}
), unparked as (
    {{waits.unpark((select id, stage from old where was_parked))}}
), recorded_ends as (
    {{rollups.append({{rollups.ended_outside($3::int8, 0, count(*), old)}})}}
), wrote as (
    update jobs j
    set state = 3, unsuccessful_state = 3, epoch = j.epoch + 1, failure = x.failure, finished_at = $3::int8, hold = null,
        parked = null, error_class = {{common.error_class(x.failure)}}, unsuccessful_stage = j.stage
    from unnest($1, $2::text[]) as x (id, failure)
    where j.id = x.id and j.state = 0
    returning j.id, j.due_at, j.deadline_at, j.parent_rev, j.parent, j.branch, j.item_count, j.items_counted, j.rev, j.has_branches
), {{delete_holds(wrote)}}, old_timers as materialized (
    select w.due_at, w.id as job, 0 as purpose from wrote w
    union all select w.deadline_at, w.id, 1 from wrote w where w.deadline_at is not null
    union all select r.deadline_at, r.job, 2 from deleted_requests r
), deleted_timers as (
    {{timers.delete_old}}
)
select j.id, j.parent_rev is not null, coalesce(j.has_branches, false), {{common.branch_child}}
from wrote j where j.parent_rev is not null or j.branch is not null or j.has_branches

-- name: request_cancel
-- Requests running attempts to end: the worker that runs one reads its request, and the timer ends the job if it does not end in time.
-- Moves the gates of cancel requests and timers. Reads all claims, which are few, to find the workers.
with running as materialized (
    select j.id, j.epoch, coalesce(h.worker, 0) as worker from jobs j
    left join lateral (
        select c.worker from claims c, unnest(c.jobs, c.epochs) as p (id, epoch)
        where p.id = j.id and p.epoch = j.epoch limit 1
    ) h on true
    where j.id = any($1::uuid[])
), held as (
    update jobs j set hold = 1 from running r where j.id = r.id
), requested as (
    insert into cancel_requests (job, worker, epoch, deadline_at, author, note)
    select id, worker, epoch, $2::int8, $3::text, $4::text from running
), to_timers as (
    insert into timers (due_at, job, purpose) select $2, id, 2 from running
)
insert into gates (queue, writer, version)
select q, $5::int8, {{gates.first_version}} from unnest(array[-1, 0]) as q where exists (select from running)
{{gates.or_raise}}

-- name: pause
-- Records who paused jobs, which are locked, and holds them: at once those that were taken out of the ready set or waited for their serial
-- key, the others when they would next be ready ($2). Walks the primary key of jobs.
with held as (
    update jobs j set hold = x.hold from unnest($1::uuid[], $2::int2[]) as x (id, hold) where j.id = x.id
)
insert into paused_jobs (job, at, author, note) select id, $3::int8, $4::text, $5::text from unnest($1::uuid[]) as x (id)

-- name: resume
-- Deletes the pauses of jobs, which are locked. A job that is being cancelled stays held. Walks primary keys.
with resumed as (
    delete from paused_jobs where job = any($1::uuid[]) returning job
)
update jobs j set hold = null from resumed r
where j.id = r.job and not exists (select from cancel_requests c where c.job = j.id)

-- name: set_held
-- Holds jobs, which are locked, that would be ready otherwise. Walks the primary key.
update jobs set hold = 2 where id = any($1::uuid[])

-- name: revive
-- Revives failed and cancelled jobs, which are locked: resets their counters, raises their epochs, makes them due at $2, and sets a deadline as
-- far away as the first one was, at most $3. Deletes what is left of pauses and cancel requests. $4 and $5 are the writers of gates and
-- counts. Walks primary keys.
with old as materialized (
    select j.id, j.due_at, j.deadline_at, j.lane, j.state from jobs j where j.id = any($1::uuid[]) and j.state in (2, 3)
), counted_jobs as (
    {{counts.add($5, select lane, count(*), 0, 0, 0, -count(*) filter (where state = 2), -count(*) filter (where state = 3)
        from old group by lane)}}
), wrote as (
    update jobs j
    set state = 0, unsuccessful_state = null, reason = null, finished_at = null, attempts = 0, worker_deaths = 0, solo_crashes = 0,
        suspect = false, retry_counts = null, epoch = j.epoch + 1, hold = null, parked = null, steps_since_wait = 0, due_at = $2::int8,
        error_class = null, unsuccessful_stage = null, unwind = null, has_undo = case when j.has_undo is not null then true end,
        serial_position = case when j.serial_key is not null then $2 end,
        deadline_at = case when j.deadline_at is not null
                      then least($2 + greatest(j.deadline_at - j.submitted_at, 0), $3::int8) end
    where j.id = any($1::uuid[]) and j.state in (2, 3)
    returning j.id, j.deadline_at
), {{delete_holds(old)}}, to_timers as (
    insert into timers (due_at, job, purpose) select deadline_at, id, 1 from wrote where deadline_at is not null
    on conflict do nothing
)
{{gates.bump_timers($4, exists (select from wrote where deadline_at is not null))}}

-- name: start_unwind
-- Starts to unwind live jobs instead of ending them: resets their counters, raises their epochs (running attempts are fenced), ends their waits
-- and holds, deletes their timers, pauses and cancel requests (skipping timers that another process is firing), and gives up the slot
-- or position of their serial key. The jobs and serial keys are locked, and the jobs not in the ready set; serial.enter comes next. $4
-- is the writer of counts. Walks primary keys.
with old as materialized (
    select j.id, j.due_at, j.deadline_at, j.serial_key, j.serial_position, j.lane, j.stage, {{counts.old_location}}
    from jobs j where j.id = any($1::uuid[]) and j.state = 0
), counted_jobs as (
    {{counts.add($4, select lane, 0, -count(*) filter (where was_scheduled), -count(*) filter (where was_parked), 0, 0, 0
        from old group by lane)}}
), unparked as (
    {{waits.unpark((select id, stage from old where was_parked))}}
), wrote as (
    update jobs j
    set unwind = x.unwind, has_undo = false, epoch = j.epoch + 1, due_at = $3::int8, attempts = 0, worker_deaths = 0, solo_crashes = 0,
        suspect = false, retry_counts = null, wait = null, wait_names = null, wait_needs = null, wait_until = null, parked = 0, hold = null
    from unnest($1::uuid[], $2::text[]) as x (id, unwind)
    where j.id = x.id and j.state = 0
), {{delete_holds(old)}}, old_timers as materialized (
    select o.due_at, o.id as job, 0 as purpose from old o
    union all select o.deadline_at, o.id, 1 from old o where o.deadline_at is not null
    union all select r.deadline_at, r.job, 2 from deleted_requests r
), deleted_timers as (
    {{timers.delete_old}}
), stopped_waiting as (
    delete from serial_waiting w using old o
    where w.serial_key = o.serial_key and w.serial_position = o.serial_position and w.job = o.id
)
delete from serial_holders h using old o where h.serial_key = o.serial_key and h.job = o.id

-- name: set_priority
-- Sets the priority of jobs, which are locked. Walks the primary key.
update jobs set priority = $2::int2 where id = any($1::uuid[])

-- name: update_stage
-- Gives a machine, which is locked, another lane, stage and data, and raises its epoch. $6 is the writer of counts, $7 the period of its id.
-- Walks primary keys.
with old as materialized (
    select j.id, j.lane, j.stage, j.state, {{counts.old_location}} from jobs j where j.id = $1::uuid
), counted_jobs as (
    {{counts.add($6, select lane, sum(sign * (state = 0)::int4), sum(sign * (state = 0 and was_scheduled)::int4),
        sum(sign * (state = 0 and was_parked)::int4), sum(sign * (state = 1)::int4), sum(sign * (state = 2)::int4),
        sum(sign * (state = 3)::int4)
        from (select lane, state, was_scheduled, was_parked, -1 as sign from old
              union all select $2::int4, state, was_scheduled, was_parked, 1 from old) moved
        group by lane)}}
), to_periods as (
    insert into lane_periods (lane, period, writer) values ($2, $7::int8, $6) on conflict do nothing
), reparked as (
    update parked_jobs p set stage = $3 from old o where o.was_parked and p.job = o.id and p.stage = coalesce(o.stage, '')
)
update jobs
set lane = $2, stage = $3::text, data_codec = $4::int2, data = $5::bytea, epoch = epoch + 1,
    unsuccessful_stage = case when unsuccessful_state is not null then $3 end
where id = $1

-- name: write_audit
-- Adds entries to the audit log, in order.
insert into audit_log (at, author, action, subject, note)
select {{common.now}}, $2::text, $3::text, s.subject, $5::text
from unnest($4::text[]) with ordinality as s (subject, position) order by s.position

-- name: write_audits
-- Adds entries of several authors to the audit log, in order. SQLite writes each by itself.
insert into audit_log (at, author, action, subject, note)
select {{common.now}}, s.author, s.action, s.subject, s.note
from unnest($2::text[], $3::text[], $4::text[], $5::text[]) with ordinality as s (author, action, subject, note, position)
order by s.position
