-- name: count
-- Counts children of a branch, $4 of them after $3: done, failed, cancelled, live; and answers the last one, if there may be
-- more. Walks jobs_branch, as ranges and order leave no other way.
with page as materialized (
    select id, state, coalesce(item_count, 1) - coalesce(items_counted, 0) as item_count, coalesce(items_counted, 0) as items_counted from jobs
    where (parent, branch, id) > ($1::uuid, $2::int8, $3::uuid) and (parent, branch) <= ($1, $2) and branch is not null
    order by parent, branch, id
    limit $4::int8
)
select (coalesce(sum(items_counted), 0) + coalesce(sum(item_count) filter (where state = 1), 0))::int8,
       coalesce(sum(item_count) filter (where state = 2), 0)::int8, coalesce(sum(item_count) filter (where state = 3), 0)::int8,
       coalesce(sum(item_count) filter (where state = 0), 0)::int8,
       case when count(*) = $4 then (select id from page order by id desc limit 1) end
from page

-- name: hold
-- Keeps a branch, which is being looked at until $3, to whoever does so until $4, unless someone else has it now. Walks the
-- primary key.
update branches set poll_at = $4::int8 where job = $1::uuid and number = $2::int8 and poll_at = $3::int8

-- name: lost
-- Of $4 children of a branch after $3 those that are live and in no place at all, and the last one looked at, if there may be
-- more: ready set, lines, timers and claims are asked, as they were at one moment. Walks jobs_branch, and the primary keys of
-- ready, line and timers.
with page as materialized (
    select j.id, j.epoch,
           j.state = 0 and coalesce(j.parked, 0) <> 1 and coalesce(j.hold, 0) <> 2
           and (select true from ready r where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $5::int8
                                           and r.job = j.id limit 1) is null
           and (select true from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id) is null
           and (select true from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0) is null as nowhere
    from jobs j
    where (j.parent, j.branch, j.id) > ($1::uuid, $2::int8, $3::uuid) and (j.parent, j.branch) <= ($1, $2)
      and j.branch is not null
    order by j.parent, j.branch, j.id
    limit $4::int8
)
select array(
           select id from page
           where nowhere and (id, epoch) not in (
               select p.id, p.epoch from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch)
           )
       ),
       case when (select count(*) from page) = $4 then (select id from page order by id desc limit 1) end

-- name: is_ours
-- Whether a look at a branch is still this one's, which nobody takes over until the transaction ends. Walks the primary key.
select 1 from branches where job = $1::uuid and number = $2::int8 and poll_at = $3::int8 for update

-- name: next
-- The store's clock, and when the next branch is to be looked at. Walks branches_poll.
select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8),
       (select min(poll_at) from branches where poll_at is not null)

-- name: redeliver
-- Raises the epochs of those of some jobs that are still live and in no place at all; they enter by serial.enter, but for those
-- that are held, which are set aside. The jobs are locked by an earlier statement, so that nobody moves them. Walks the primary
-- keys of jobs, ready, line and timers. Answers who is to enter.
update jobs j set epoch = j.epoch + 1, hold = case when j.hold = 1 then 2 else j.hold end
where j.id = any($1::uuid[]) and j.state = 0 and coalesce(j.parked, 0) <> 1 and coalesce(j.hold, 0) <> 2
  and not exists (select from ready r where r.lane in (j.lane, -j.lane)
                                        and r.rank = j.due_at + j.priority * $2::int8 and r.job = j.id)
  and not exists (select from serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id)
  and not exists (select from timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0)
  and (j.id, j.epoch) not in (select p.id, p.epoch from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch))
returning j.id

-- name: sample
-- What is to be seen of some branches, in their order: how much was spawned, what is waited for, what was seen before, how
-- children have ended; and how many are claimed, and how many of these have written nothing, as the claims say, which are few.
-- Walks the primary keys of branches, tallies and jobs (`offset 0` keeps it from walking all children instead).
with claimed as materialized (
    select j.parent, j.branch, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0) as item_count, j.rev
    from claims c cross join lateral unnest(c.jobs, c.epochs) as p (id, epoch)
    cross join lateral (select * from jobs where id = p.id and epoch = p.epoch and state = 0 offset 0) j
    where j.branch is not null and j.parent = any($1::uuid[])
)
select b.job, b.number, b.spawned, b.watch, b.poll, t.started, t.done, t.failed, t.cancelled, c.claimed, c.begun
from unnest($1, $2::int8[]) with ordinality as k (job, number, serial_position)
join branches b on b.job = k.job and b.number = k.number
cross join lateral (
    select coalesce(sum(started), 0)::int8 as started, coalesce(sum(done), 0)::int8 as done,
           coalesce(sum(failed), 0)::int8 as failed, coalesce(sum(cancelled), 0)::int8 as cancelled
    from branch_counts where job = b.job and branch = b.number
) t
cross join lateral (
    select coalesce(sum(item_count), 0)::int8 as claimed, coalesce(sum(item_count) filter (where rev = 0), 0)::int8 as begun
    from claimed where parent = b.job and branch = b.number
) c
order by k.serial_position

-- name: sum
-- The sum of what is counted of a branch, and how many children were spawned in it. Walks the primary keys of tallies and
-- branches.
select coalesce(sum(done), 0)::int8, coalesce(sum(failed), 0)::int8, coalesce(sum(cancelled), 0)::int8,
       coalesce((select b.spawned from branches b where b.job = $1 and b.number = $2), 0)::int8
from branch_counts where job = $1::uuid and branch = $2::int8

-- name: take
-- Takes branches that are due to be looked at, a bounded number: until $3 nobody else looks at them, and whoever took them has
-- said by then when that is next. Walks branches_poll; passes over those that someone writes to. Answers them in the order in
-- which they were due.
with due as materialized (
    select b.ctid as at, b.job, b.number, b.poll_at from branches b where b.poll_at <= $1::int8
    order by b.poll_at, b.job, b.number limit $2::int8 for update skip locked
), took as (
    update branches set poll_at = $3::int8 where ctid = any (array(select at from due))
)
select job, number from due order by poll_at, job, number

-- name: write
-- Keeps what was seen of a branch, and says when it is looked at next, unless that was said meanwhile: it is cut again ($6) as
-- long as it is cut and children are live ($5), looked at again ($7) as long as its job, if that is live, waits for it.
-- Walks the primary keys of branches and jobs. Answers whether it is cut.
update branches b
set poll = $4::text, cancels_children = b.cancels_children and $5::bool, watch = case when j.id is not null then b.watch end,
    poll_at = case when b.cancels_children and $5 then $6::int8 when b.watch is not null and j.id is not null then $7::int8 end
from branches o left join jobs j on j.id = o.job and j.state = 0
where o.job = $1::uuid and o.number = $2::int8 and b.job = o.job and b.number = o.number and b.poll_at = $3::int8
returning b.cancels_children
