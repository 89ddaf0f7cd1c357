-- Maintenance::poll_branches: polls branches whose time has come. A poller takes branches by moving their `poll_at` (take_due), so that it has each
-- to itself until then; what takes long is read without a lock. Reads branches, branch_counts, claims and jobs; writes branches,
-- branch_counts and lost jobs. SQLite reads all in one snapshot and writes afterwards.

-- name: next
-- Reads the store's clock, and when the next branch is due to be polled. Walks branches_poll.
select {{common.now}}, (select min(poll_at) from branches where poll_at is not null)

-- name: take_due
-- Takes branches that are due to be polled, at most $2, until $3, and returns them in the order in which they were due. Walks
-- branches_poll; skips those that someone writes.
with due as materialized (
    select b.ctid as at, b.job, b.number, b.poll_at from branches b where b.poll_at <= $1::int8
    order by b.poll_at, b.job, b.number limit $2::int8 for update skip locked
), taken as (
    update branches set poll_at = $3::int8 where ctid = any (array(select at from due))
)
select job, number from due order by poll_at, job, number

-- name: extend
-- Keeps a branch that was taken until $3 to its poller until $4, unless someone else has it by now. Walks the primary key.
update branches set poll_at = $4::int8 where job = $1::uuid and number = $2::int8 and poll_at = $3::int8

-- name: lock_taken
-- Locks a branch that was taken until $3, unless someone else has it by now. Walks the primary key.
select 1 from branches where job = $1::uuid and number = $2::int8 and poll_at = $3::int8 for update

-- name: sample
-- Reads what a poll samples of some branches, in their order: how many children were spawned, what is watched for, what the last poll found,
-- how children ended, how many are claimed and how many of these have written nothing. Reads all claims, which are few; walks the primary
-- keys of branches, branch_counts and jobs (`offset 0` keeps it from walking all children instead).
with claimed as materialized (
    select j.parent, j.branch, {{common.items_left}} as item_count, j.rev
    from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch)
    cross join lateral (select * from jobs where id = p.id and epoch = p.epoch and state = 0 offset 0) j
    where j.branch is not null and j.parent = any($1::uuid[])
)
select b.job, b.number, b.spawned, b.watch, b.poll, sums.started, sums.done, sums.failed, sums.cancelled, c.claimed, c.begun
from unnest($1, $2::int8[]) with ordinality as k (job, number, position)
join branches b on b.job = k.job and b.number = k.number
{{branches.sums}}
cross join lateral (
    select coalesce(sum(item_count), 0)::int8 as claimed, coalesce(sum(item_count) filter (where rev = 0), 0)::int8 as begun
    from claimed where parent = b.job and branch = b.number
) c
order by k.position

-- name: read_sum
-- Reads the sums of a branch's counts, and how many children were spawned. Walks the primary keys of branch_counts and branches.
select coalesce(sum(done), 0)::int8, coalesce(sum(failed), 0)::int8, coalesce(sum(cancelled), 0)::int8,
       coalesce((select b.spawned from branches b where b.job = $1 and b.number = $2), 0)::int8
from branch_counts where job = $1::uuid and branch = $2::int8

-- name: count_children
-- Counts the next $4 children of a branch after $3 by their rows: done, failed, cancelled, live; and returns the last one if there may be
-- more. Walks jobs_branch.
with page as materialized (
    select j.id, j.state, {{common.items_left}} as item_count, coalesce(j.items_counted, 0) as items_counted from jobs j
    where {{children.in_branch($1::uuid, $2::int8, $3::uuid)}}
    order by j.parent, j.branch, j.id
    limit $4::int8
)
select (coalesce(sum(items_counted), 0) + coalesce(sum(item_count) filter (where state = 1), 0))::int8,
       coalesce(sum(item_count) filter (where state = 2), 0)::int8, coalesce(sum(item_count) filter (where state = 3), 0)::int8,
       coalesce(sum(item_count) filter (where state = 0), 0)::int8,
       case when count(*) = $4 then (select id from page order by id desc limit 1) end
from page

-- name: find_lost
-- Lists, of the next $4 children of a branch after $3, those that are live and nowhere: not parked, held, ready, waiting, scheduled or
-- claimed, all as of one moment; and returns the last one that was read if there may be more. Walks jobs_branch, and the primary keys of
-- ready, serial_waiting and timers (by scalar subqueries, which are not turned into joins).
with page as materialized (
    select j.id, j.epoch,
           j.state = 0 and coalesce(j.parked, 0) <> 1 and coalesce(j.hold, 0) <> 2
           and (select true from ready r where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $5::int8
                                           and r.job = j.id limit 1) is null
           and (select true from serial_waiting w
                where w.serial_key = j.serial_key and w.serial_position = j.serial_position and w.job = j.id) is null
           and (select true from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0) is null as is_nowhere
    from jobs j
    where {{children.in_branch($1::uuid, $2::int8, $3::uuid)}}
    order by j.parent, j.branch, j.id
    limit $4::int8
)
select array(select id from page where is_nowhere and (id, epoch) not in ({{claimed_jobs}})),
       case when (select count(*) from page) = $4 then (select id from page order by id desc limit 1) end

-- fragment: claimed_jobs
-- The jobs in all claims, and their epochs there.
select p.id, p.epoch from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch)

-- name: redeliver
-- Raises the epochs of lost jobs, which are locked, if they are still live and nowhere, and holds those that are to be held. Returns who is to
-- enter by serial.enter. Walks the primary keys of jobs, ready, serial_waiting and timers.
update jobs j set epoch = j.epoch + 1, hold = case when j.hold = 1 then 2 else j.hold end
where j.id = any($1::uuid[]) and j.state = 0 and coalesce(j.parked, 0) <> 1 and coalesce(j.hold, 0) <> 2
  and not {{common.in_ready($2)}}
  and not {{common.in_serial_waiting}}
  and not {{common.in_timers}}
  and (j.id, j.epoch) not in ({{claimed_jobs}})
returning j.id

-- name: write
-- Writes what a poll found and the time of the next, unless someone else has the branch by now: at $6 as long as children are being
-- cancelled and some are live ($5), at $7 as long as its job is live and watches it. Returns whether children are being cancelled. Walks the
-- primary keys of branches and jobs.
update branches b
set poll = $4::text, cancels_children = b.cancels_children and $5::bool, watch = case when j.id is not null then b.watch end,
    poll_at = case when b.cancels_children and $5 then $6::int8 when b.watch is not null and j.id is not null then $7::int8 end
from branches o left join jobs j on j.id = o.job and j.state = 0
where o.job = $1::uuid and o.number = $2::int8 and b.job = o.job and b.number = o.number and b.poll_at = $3::int8
returning b.cancels_children
