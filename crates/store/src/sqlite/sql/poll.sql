-- name: due
-- Branches that are due to be looked at, the earliest first, a bounded batch. Walks branches_poll.
select job, number, poll_at, spawned, started, done, failed, cancelled, watch, cancels_children, poll
from windlass_branches
where poll_at <= ?1
order by poll_at, job, number
limit ?2

-- name: branch
-- One branch, if it is to be looked at still when it was (?3): nobody else has meanwhile. Walks the primary key.
select job, number, poll_at, spawned, started, done, failed, cancelled, watch, cancels_children, poll
from windlass_branches
where job = ?1 and number = ?2 and poll_at = ?3

-- name: claimed
-- The branch of one job of a claim, if it is in one and still claimed under that epoch: how many children it stands for that
-- are not counted, and whether it has written nothing. Walks the primary key.
select parent, branch, coalesce(item_count, 1) - coalesce(items_counted, 0), rev = 0
from windlass_jobs where id = ?1 and epoch = ?2 and state = 0 and branch is not null

-- name: count
-- Counts the children of a branch anew: done, failed, cancelled, live. Walks jobs_parent, and all rows of the branch.
select coalesce(sum(coalesce(items_counted, 0)), 0)
           + coalesce(sum(coalesce(item_count, 1) - coalesce(items_counted, 0)) filter (where state = 1), 0),
       coalesce(sum(coalesce(item_count, 1) - coalesce(items_counted, 0)) filter (where state = 2), 0),
       coalesce(sum(coalesce(item_count, 1) - coalesce(items_counted, 0)) filter (where state = 3), 0),
       coalesce(sum(coalesce(item_count, 1) - coalesce(items_counted, 0)) filter (where state = 0), 0)
from windlass_jobs where parent = ?1 and branch = ?2

-- name: lost
-- Live children of a branch that are in no place but, maybe, a claim, in the order of ids. Walks jobs_parent, and primary keys
-- for each live row of the branch.
select j.id, j.epoch
from windlass_jobs j
where j.parent = ?1 and j.branch = ?2 and j.state = 0 and j.parked is null and coalesce(j.hold, 0) <> 2
  and not exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?3 and r.job = j.id)
  and not exists (select 1 from windlass_serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id)
  and not exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0)
order by j.id

-- name: next
-- When the next branch is to be looked at. Walks branches_poll.
select min(poll_at) from windlass_branches where poll_at is not null

-- name: sample
-- Keeps what was seen of a branch, whether it is cut still, and when it is looked at next. Walks the primary key.
update windlass_branches set poll = ?3, cancels_children = ?4, poll_at = ?5 where job = ?1 and number = ?2
