-- name: remove
-- Forgets timers of jobs that have ended. Passes over those that are firing: they will find nothing to do.
delete from timers where ctid = any (array(
    select t.ctid from unnest($1::int8[], $2::uuid[]) as d (due_at, job)
    join timers t on t.due_at = d.due_at and t.job = d.job and t.purpose = $3
    for update of t skip locked
))

-- name: take_due
-- Takes timers that are due, a bounded batch. Walks the primary key; passes over those that another process is firing.
delete from timers where ctid = any (array(
    select t.ctid from timers t where t.due_at <= $1 order by t.due_at, t.job, t.purpose limit $2 for update skip locked
))
returning due_at, job, purpose

-- name: hold
-- Sets jobs aside that are due and held.
update jobs set hold = 2 where id = any($1::uuid[])

-- name: expire
-- Fails jobs whose deadline passed: whoever runs one is fenced. Answers how many were live.
update jobs j
set state = 2, unsuccessful_state = 2, epoch = j.epoch + 1, reason = $3, failure = x.failure, finished_at = $4, hold = null,
    parked = null
from unnest($1::uuid[], $2::text[]) as x (id, failure)
where j.id = x.id and j.state = 0

-- name: lock_jobs
-- Locks the live ones of jobs whose timers fire, and of the parents whose waits count them, by id, and reads where they
-- stand, which have something to undo before they end, of which that is being undone, which have branches, and for
-- which branches they count. A statement of its own, after
-- due: whoever was moving one of them has finished, and what it did is seen.
select id, lane, priority, due_at, suspect, hold, serial_key, deadline_at, parked, case when parent_rev is not null then parent end,
       coalesce(has_undo and unwind is null, false), coalesce(not has_undo, false), coalesce(has_branches, false),
       case when branch is not null then parent end, branch, coalesce(item_count, 1) - coalesce(items_counted, 0), rev
from jobs
where id = any (array(select unnest($1::uuid[]) union select c.parent from jobs c where c.id = any($1) and c.parent_rev is not null))
  and state = 0
order by id for update

-- name: next
-- When the next timer or tick is due, the store's clock, whether jobs wait to be put in, and whether a tick is due.
select c.now,
       least((select min(due_at) from timers),
             (select min(next_at) from schedules where next_at is not null and paused_at is null)),
       exists (select from arrivals),
       exists (select from schedules where next_at <= c.now and next_at is not null and paused_at is null)
from (select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now) c

-- name: make_ready
-- Puts woken jobs into the ready set and moves the gates of their queues.
with woken as (
    select * from unnest($1::int4[], $2::int8[], $3::uuid[], $4::int4[]) as w (lane, rank, job, of_lane)
), to_ready as (
    insert into ready (lane, rank, job) select lane, rank, job from woken on conflict do nothing
)
insert into gates (queue, writer, version)
select l.queue, $5::int8, (random() * 1e12)::int8 from lanes l where l.id in (select of_lane from woken)
group by l.queue
on conflict (queue, writer) do update set version = gates.version + 1

-- name: cancel_requests
-- By whom jobs were told to end whose time for it is over.
select job, author, note, deadline_at from cancel_requests where job = any($1::uuid[])

-- name: end_waits
-- Ends the waits of parked jobs whose time is over.
update jobs set parked = null where id = any($1::uuid[])

-- name: remove_ready
-- Takes jobs out of the ready set, from wherever their rank places them. A statement of its own, after timers.lock_jobs
-- and serial.lock_keys_of_jobs: it must see a place that was being filled while those waited.
delete from ready r using unnest($1::int4[], $2::int8[], $3::uuid[]) as x (lane, rank, job)
where r.lane = x.lane and r.rank = x.rank and r.job = x.job
