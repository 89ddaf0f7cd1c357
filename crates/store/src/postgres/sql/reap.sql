-- Maintenance::reap: declares workers dead, and returns the jobs in their claims. Locks workers (by id), claims (by worker and number, skipping those
-- that another reaper walks), then jobs with the parents that count them (by id). SQLite returns one job after the other.

-- name: declare_dead
-- Declares workers dead: those in $2 and, with $3, those whose lease has run out. Waits for claims of theirs that are being made, so that none
-- is missed afterwards. Reads all workers, which are few.
update workers set status = 1, lost_at = {{common.now}} where id = any (array(
    select w.id from workers w
    where w.status = 0 and (w.id = any($2::int8[]) or ($3 and w.lease_until <= {{common.now}}))
    order by w.id
    for update
))
returning id

-- name: take_claims
-- Deletes claims of dead workers, at most $1, and returns them. Skips those that another reaper walks. Walks the primary key.
delete from claims where ctid = any (array(
    select c.ctid from claims c join workers w on w.id = c.worker
    where w.status = 1
    order by c.worker, c.number
    limit $1
    for update of c skip locked
))
returning worker, number, solo, claimed_at, jobs, epochs

-- name: lock_jobs
-- Locks live jobs of dead workers, with the parents whose waits count them, by id, and reads their counters, which must be unwound before
-- they end, which have branches, and the branches they are in. Walks the primary key.
select j.id, j.epoch, j.worker_deaths, j.solo_crashes, {{common.has_undo}}, coalesce(j.has_branches, false), {{common.branch_child}}
from jobs j
where j.id = any {{common.with_parents}}
  and j.state = 0
order by j.id
for update

-- name: return_jobs
-- Returns jobs as suspects, or fails those that are poison, as decided by the caller; raises their epochs, records the lost attempts, and
-- fills the ready set and moves gates for those that are not held. $10 is the number of the reason, $11 the span by which priority moves
-- the rank, $12 the gate writer, $13 that of counts. Returns, by state, how many jobs there are; the deadlines of poisoned jobs; the jobs that give up
-- their serial key; and all poisoned jobs, and which of them a wait counts. Walks the primary key of jobs.
with {{common.clock}}, decided as materialized (
    select * from unnest($2::uuid[], $3::int4[], $4::int2[], $5::int2[], $6::bool[], $7::int8[], $8::int8[], $9::text[])
         as d (id, epoch, worker_deaths, solo_crashes, is_poison, worker, claimed_at, failure)
), wrote as (
    update jobs j
    set epoch = j.epoch + 1, worker_deaths = d.worker_deaths, solo_crashes = d.solo_crashes, failure = d.failure,
        suspect = j.suspect or not d.is_poison, hold = case when d.is_poison then null when j.hold = 1 then 2 else j.hold end,
        state = case when d.is_poison then 2 else 0 end,
        unsuccessful_state = case when d.is_poison then 2 end,
        reason = case when d.is_poison then $10::int2 end,
        finished_at = case when d.is_poison then clock.now end,
        error_class = case when d.is_poison then {{common.error_class(d.failure)}} end,
        unsuccessful_stage = case when d.is_poison then j.stage end
    from decided d, clock
    where j.id = d.id and j.epoch = d.epoch and j.state = 0
    returning j.id, j.lane, j.priority, j.due_at, j.state, j.deadline_at, j.hold, j.serial_key, j.parent_rev, j.finished_at,
              {{rollups.branch_of_job}}
), attempted as (
    insert into attempts (job, epoch, worker, started_at, ended_at, failure)
    select d.id, d.epoch, d.worker, d.claimed_at, clock.now, d.failure from decided d join wrote on wrote.id = d.id, clock
), to_ready as (
    insert into ready (lane, rank, job)
    select -lane, due_at + priority * $11::int8, id from wrote where state = 0 and hold is null
), to_gates as (
    {{gates.bump_lanes($12, select lane from wrote where state = 0 and hold is null)}}
), counted_jobs as (
    {{counts.add($13, select lane, -count(*), 0, 0, 0, count(*), 0 from wrote where state = 2 group by lane)}}
), recorded_ends as (
    {{rollups.append({{rollups.ended_outside(max(finished_at), count(*), 0, wrote where state = 2)}})}}
)
select state, count(*), array_agg(deadline_at) filter (where state = 2 and deadline_at is not null),
       array_agg(id) filter (where state = 2 and deadline_at is not null),
       array_agg(id) filter (where serial_key is not null and (state <> 0 or hold is not null)),
       array_agg(id) filter (where state = 2), array_agg(id) filter (where state = 2 and parent_rev is not null)
from wrote group by state

-- name: add_lost_attempts
-- Records the lost attempts of jobs, which are locked, that are unwound instead of failing as poison; control.start_unwind comes next. Walks
-- the primary key of jobs.
with wrote as (
    update jobs j set failure = d.failure
    from unnest($2::uuid[], $3::int4[], $4::int8[], $5::int8[], $6::text[]) as d (id, epoch, worker, claimed_at, failure)
    where j.id = d.id and j.epoch = d.epoch and j.state = 0
    returning d.*
)
insert into attempts (job, epoch, worker, started_at, ended_at, failure)
select w.id, w.epoch, w.worker, w.claimed_at, {{common.now}}, w.failure
from wrote w

-- name: retire_dead
-- Retires dead workers that have no claims left, and returns whether others are left. Reads all workers, which are few.
with retired as (
    update workers set status = 2
    where status = 1 and not exists (select 1 from claims c where c.worker = workers.id)
    returning id
)
select exists (select 1 from workers where status = 1 and id not in (select id from retired))
