-- Maintenance::fire_timers: fires due timers. Takes a batch of timers, skipping those that another process fires, then locks their jobs with the
-- parents that count them (by id), then their serial keys. Writes timers, jobs, ready and gates. SQLite fires one timer after the other.

-- name: next
-- Reads the store's clock, when the next timer or tick is due, whether jobs wait to be admitted, and whether a tick is due. Walks the primary
-- keys of timers and arrivals, and schedules_next.
select c.now,
       least((select min(due_at) from timers),
             (select min(next_at) from schedules where next_at is not null and paused_at is null)),
       exists (select from arrivals),
       exists (select from schedules where next_at <= c.now and next_at is not null and paused_at is null)
from (select {{common.now}} as now) c

-- name: take_due
-- Deletes timers that are due, at most $2, and returns them. Skips those that another process fires. Walks the primary key.
delete from timers where ctid = any (array(
    select t.ctid from timers t where t.due_at <= $1 order by t.due_at, t.job, t.purpose limit $2 for update skip locked
))
returning due_at, job, purpose

-- name: lock_jobs
-- Locks the live ones of the jobs whose timers fire, with the parents whose waits count them, by id, and reads where they are, which must be
-- unwound before they end, which are being unwound, which have branches, and the branches they are in. A statement of its own, after
-- take_due: what earlier holders of the locks did is seen. Walks the primary key.
select j.id, j.lane, j.priority, j.due_at, j.suspect, j.hold, j.serial_key, j.deadline_at, j.parked,
       case when j.parent_rev is not null then j.parent end, {{common.has_undo}}, coalesce(not j.has_undo, false),
       coalesce(j.has_branches, false), {{common.branch_child}}
from jobs j
where j.id = any {{common.with_parents}}
  and j.state = 0
order by j.id for update

-- name: cancel_requests
-- Reads the cancel requests of jobs whose grace period is over. Walks the primary key.
select job, author, note, deadline_at from cancel_requests where job = any($1::uuid[])

-- name: end_waits
-- Ends the waits of parked jobs, which are locked, because their time is over at $2, and records how long they were. Walks primary keys.
with woken as (
    update jobs j set parked = null where j.id = any($1::uuid[])
    returning j.id, j.stage, j.kind, j.wait_names, j.wait_needs, j.parked_at, $2::int8 as ended_at, true as timed_out
), unparked as (
    {{waits.unpark(woken)}}
)
{{rollups.append_waits(woken)}}

-- name: make_ready
-- Adds jobs to the ready set and moves the gates of their queues: $1 lanes there, $2 ranks, $3 jobs, $4 their own lanes, $5 the gate writer.
with entering as (
    select * from unnest($1::int4[], $2::int8[], $3::uuid[], $4::int4[]) as e (ready_lane, rank, job, lane)
), to_ready as (
    insert into ready (lane, rank, job) select ready_lane, rank, job from entering on conflict do nothing
)
{{gates.bump_lanes($5, select lane from entering)}}

-- name: expire
-- Fails jobs, which are locked, whose deadlines have passed, and raises their epochs: running attempts are fenced. $5 is the writer of
-- counts. Walks the primary key of jobs.
with old as materialized (
    select j.id, j.lane, j.stage, {{rollups.branch_of_job}}, {{counts.old_location}} from jobs j where j.id = any($1::uuid[]) and j.state = 0
), counted_jobs as (
    {{counts.left_live($5, count(*), 0, old)}}
), unparked as (
    {{waits.unpark((select id, stage from old where was_parked))}}
), recorded_ends as (
    {{rollups.append({{rollups.ended_outside($4::int8, count(*), 0, old)}})}}
)
update jobs j
set state = 2, unsuccessful_state = 2, epoch = j.epoch + 1, reason = $3, failure = x.failure, finished_at = $4, hold = null,
    parked = null, error_class = {{common.error_class(x.failure)}}, unsuccessful_stage = j.stage
from unnest($1, $2::text[]) as x (id, failure)
where j.id = x.id and j.state = 0

-- name: remove
-- Deletes timers of one purpose ($3) of jobs that have ended. Skips those that another process is firing; they find nothing to do. Walks the
-- primary key.
{{delete_unlocked(unnest($1::int8[], $2::uuid[]) as o (due_at, job)
    join timers t on t.due_at = o.due_at and t.job = o.job and t.purpose = $3)}}

-- fragment: delete_unlocked(matching)
-- Deletes the timers `t` that a join finds. Skips those that another process is firing; they find nothing to do.
delete from timers where ctid = any (array(
    select t.ctid from {{matching}}
    for update of t skip locked
))

-- fragment: delete_old
-- The same for the timers that the CTE `old_timers` lists.
{{delete_unlocked(old_timers o join timers t on t.due_at = o.due_at and t.job = o.job and t.purpose = o.purpose)}}
