-- name: clear_holds
-- Forgets what held jobs that have ended. What a job that was brought back has got since is left alone. Passes over
-- timers that are firing: they will find nothing to do.
with over as materialized (
    select j.id from jobs j where j.id = any($1::uuid[]) and j.state <> 0
), untold as (
    delete from cancel_requests o using over where o.job = over.id returning o.job, o.deadline_at
), unpaused as (
    delete from paused_jobs p using over where p.job = over.id
)
delete from timers where ctid = any (array(
    select t.ctid from untold o join timers t on t.due_at = o.deadline_at and t.job = o.job and t.purpose = 2
    for update of t skip locked
))

-- name: cancel
-- Ends live jobs as cancelled: whoever runs one is fenced. Their timers and whatever held them are forgotten; passes
-- over timers that are firing, which will find nothing to do. Answers those that are children or have
-- branches: which their parents' waits count, which have branches, and for which branches which end.
with wrote as (
    update jobs j
    set state = 3, unsuccessful_state = 3, epoch = j.epoch + 1, failure = x.failure, finished_at = $3::int8, hold = null,
        parked = null
    from unnest($1::uuid[], $2::text[]) as x (id, failure)
    where j.id = x.id and j.state = 0
    returning j.id, j.due_at, j.deadline_at, j.parent_rev, j.parent, j.branch, j.item_count, j.items_counted, j.rev, j.has_branches
), unpaused as (
    delete from paused_jobs p using wrote w where p.job = w.id
), untold as (
    delete from cancel_requests o using wrote w where o.job = w.id returning o.job, o.deadline_at
), timed as materialized (
    select w.due_at, w.id, 0 as purpose from wrote w
    union all select w.deadline_at, w.id, 1 from wrote w where w.deadline_at is not null
    union all select o.deadline_at, o.job, 2 from untold o
), untimed as (
    delete from timers where ctid = any (array(
        select t.ctid from timed d join timers t on t.due_at = d.due_at and t.job = d.id and t.purpose = d.purpose
        for update of t skip locked
    ))
)
select id, parent_rev is not null, coalesce(has_branches, false), case when branch is not null then parent end, branch,
       coalesce(item_count, 1) - coalesce(items_counted, 0), rev
from wrote where parent_rev is not null or branch is not null or has_branches

-- name: lock_jobs
-- Locks jobs, and the parents whose waits count them, by id, and reads all that acts on them need; the columns at the
-- end say which were asked for, which have something to undo before they end, and for which branches they count.
select id, lane, priority, state, due_at, suspect, serial_key, hold, epoch, settings, kind, coalesce(parked, 0) = 1, rev,
       parent_rev is not null, id = any($1), coalesce(has_undo and unwind is null, false),
       case when branch is not null then parent end, branch, coalesce(item_count, 1) - coalesce(items_counted, 0), rev
from jobs
where id = any (array(select unnest($1::uuid[]) union select c.parent from jobs c where c.id = any($1) and c.parent_rev is not null))
order by id for update

-- name: lanes_of_jobs
-- The lanes of jobs.
select id, lane from jobs where id = any($1::uuid[])

-- name: pause
-- Keeps locked jobs from being claimed: with $2, those that were taken out of the ready set or a line.
with held as (
    update jobs j set hold = x.hold from unnest($1::uuid[], $2::int2[]) as x (id, hold) where j.id = x.id
)
insert into paused_jobs (job, at, author, note) select id, $3::int8, $4::text, $5::text from unnest($1::uuid[]) as x (id)

-- name: positions
-- Where locked jobs are: in a line, among the timers; whether they are paused (and by whom), or told to end. A statement
-- of its own, after control.lock_jobs and serial.lock_keys_of_jobs.
select j.id,
       exists (select 1 from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       (select p.author from paused_jobs p where p.job = j.id),
       exists (select 1 from cancel_requests o where o.job = j.id)
from jobs j where j.id = any($1::uuid[])

-- name: priority
-- Gives locked jobs another priority.
update jobs set priority = $2::int2 where id = any($1::uuid[])

-- name: update_stage
-- Gives a locked machine another lane, stage and data: whoever looked at it before is outdated.
update jobs set lane = $2::int4, stage = $3::text, data_codec = $4::int2, data = $5::bytea, epoch = epoch + 1
where id = $1::uuid

-- name: resume
-- Takes pauses back. What was told to end meanwhile stays held.
with gone as (
    delete from paused_jobs where job = any($1::uuid[]) returning job
)
update jobs j set hold = null from gone g
where j.id = g.job and not exists (select from cancel_requests o where o.job = j.id)

-- name: revive
-- Brings failed and cancelled jobs back to life, with their counters reset and their deadline as far away as at first.
-- Whatever an earlier life left behind is forgotten.
with old as materialized (
    select j.id, j.due_at, j.deadline_at from jobs j where j.id = any($1::uuid[]) and j.state in (2, 3)
), wrote as (
    update jobs j
    set state = 0, unsuccessful_state = null, reason = null, finished_at = null, attempts = 0, worker_deaths = 0, solo_crashes = 0,
        suspect = false, retry_counts = null, epoch = j.epoch + 1, hold = null, parked = null, steps_since_wait = 0, due_at = $2::int8,
        unwind = null, has_undo = case when j.has_undo is not null then true end,
        serial_position = case when j.serial_key is not null then $2 end,
        deadline_at = case when j.deadline_at is not null
                      then least($2 + greatest(j.deadline_at - j.submitted_at, 0), $3::int8) end
    where j.id = any($1::uuid[]) and j.state in (2, 3)
    returning j.id, j.deadline_at
), unpaused as (
    delete from paused_jobs p using old w where p.job = w.id
), untold as (
    delete from cancel_requests o using old w where o.job = w.id
), timed as (
    insert into timers (due_at, job, purpose) select deadline_at, id, 1 from wrote where deadline_at is not null
    on conflict do nothing
)
insert into gates (queue, writer, version)
select 0, $4::int8, (random() * 1e12)::int8 where exists (select from wrote where deadline_at is not null)
on conflict (queue, writer) do update set version = gates.version + 1

-- name: request_cancel
-- Tells running jobs to end: whoever claimed one finds it among its orders, and the timer ends it if it does not.
with holder as materialized (
    select j.id, j.epoch, coalesce(h.worker, 0) as worker from jobs j
    left join lateral (
        select c.worker from claims c, unnest(c.jobs, c.epochs) as p (id, epoch)
        where p.id = j.id and p.epoch = j.epoch limit 1
    ) h on true
    where j.id = any($1::uuid[])
), held as (
    update jobs j set hold = 1 from holder h where j.id = h.id
), told as (
    insert into cancel_requests (job, worker, epoch, deadline_at, author, note)
    select id, worker, epoch, $2::int8, $3::text, $4::text from holder
), timed as (
    insert into timers (due_at, job, purpose) select $2, id, 2 from holder
)
insert into gates (queue, writer, version)
select q, $5::int8, (random() * 1e12)::int8 from unnest(array[-1, 0]) as q where exists (select from holder)
on conflict (queue, writer) do update set version = gates.version + 1

-- name: remove_ready
-- Takes jobs out of the ready set, from wherever their rank places them, and answers which were there: nobody else has
-- claimed those.
delete from ready r using unnest($1::int4[], $2::int8[], $3::uuid[]) as x (lane, rank, job)
where r.lane = x.lane and r.rank = x.rank and r.job = x.job
returning r.job

-- name: unwind
-- Has live jobs unwound before they end: whoever runs one is fenced, what counts attempts starts anew, and the job waits
-- for nothing. Their timers and whatever held them are forgotten (timers that are firing are passed over, and find nothing
-- to do), and they give up the slot or the place in line of their serial key. The jobs are locked and in no ready set;
-- they enter by serial.enter. Walks the primary key of jobs. Needs serial.lock_keys_of_jobs before.
with old as materialized (
    select j.id, j.due_at, j.deadline_at, j.serial_key, j.serial_position from jobs j where j.id = any($1::uuid[]) and j.state = 0
), wrote as (
    update jobs j
    set unwind = x.unwind, has_undo = false, epoch = j.epoch + 1, due_at = $3::int8, attempts = 0, worker_deaths = 0, solo_crashes = 0,
        suspect = false, retry_counts = null, wait = null, wait_names = null, wait_needs = null, wait_until = null, parked = 0, hold = null
    from unnest($1::uuid[], $2::text[]) as x (id, unwind)
    where j.id = x.id and j.state = 0
), unpaused as (
    delete from paused_jobs p using old o where p.job = o.id
), untold as (
    delete from cancel_requests r using old o where r.job = o.id returning r.job, r.deadline_at
), timed as materialized (
    select o.due_at, o.id, 0 as purpose from old o
    union all select o.deadline_at, o.id, 1 from old o where o.deadline_at is not null
    union all select r.deadline_at, r.job, 2 from untold r
), untimed as (
    delete from timers where ctid = any (array(
        select t.ctid from timed d join timers t on t.due_at = d.due_at and t.job = d.id and t.purpose = d.purpose
        for update of t skip locked
    ))
), unlined as (
    delete from serial_waiting l using old o where l.serial_key = o.serial_key and l.serial_position = o.serial_position and l.job = o.id
)
delete from serial_holders h using old o where h.serial_key = o.serial_key and h.job = o.id

-- name: write_audit
-- Adds entries to the audit log, in order.
insert into audit_log (at, author, action, subject, note)
select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8), $2::text, $3::text, s.subject, $5::text
from unnest($4::text[]) with ordinality as s (subject, serial_position) order by s.serial_position
