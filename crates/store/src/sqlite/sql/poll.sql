-- Maintenance::poll_branches: polls branches whose time has come. Reads branches, claims and jobs in one snapshot beside the writer, then
-- writes branches in a short transaction. PostgreSQL takes the branches first (it moves `poll_at`), because its pollers run at the
-- same time.

-- fragment: branch
-- The columns of a branch that is polled; read by `read_due`.
select job, number, poll_at, spawned, started, done, failed, cancelled, watch, cancels_children, poll
from windlass_branches

-- name: read_due
-- Reads branches that are due to be polled, the earliest first, at most ?2. Walks branches_poll.
{{branch}}
where poll_at <= ?1
order by poll_at, job, number
limit ?2

-- name: read_branch
-- Reads one branch, if its next poll is still at ?3: nobody else has polled it. Walks the primary key.
{{branch}}
where job = ?1 and number = ?2 and poll_at = ?3

-- name: read_claimed
-- Reads the branch of one job of a claim, if it is in one and still claimed under that epoch: how many children it represents that
-- are not counted, and whether it has written nothing. Walks the primary key of jobs.
select parent, branch, {{common.items_left}}, rev = 0
from windlass_jobs where id = ?1 and epoch = ?2 and state = 0 and branch is not null

-- name: count_children
-- Counts the children of a branch by their rows: done, failed, cancelled, live. Walks jobs_parent over all rows of the branch.
select coalesce(sum(coalesce(items_counted, 0)), 0) + coalesce(sum({{common.items_left}}) filter (where state = 1), 0),
       coalesce(sum({{common.items_left}}) filter (where state = 2), 0),
       coalesce(sum({{common.items_left}}) filter (where state = 3), 0),
       coalesce(sum({{common.items_left}}) filter (where state = 0), 0)
from windlass_jobs where parent = ?1 and branch = ?2

-- name: find_lost
-- Lists live children of a branch that are nowhere but, possibly, in a claim, by id. Walks jobs_parent, and primary keys for each live
-- row of the branch.
select j.id, j.epoch
from windlass_jobs j
where j.parent = ?1 and j.branch = ?2 and j.state = 0 and j.parked is null and coalesce(j.hold, 0) <> 2
  and not {{common.in_ready(?3)}}
  and not {{common.in_serial_waiting}}
  and not {{common.in_timers}}
order by j.id

-- name: write
-- Writes what a poll found, whether children are still being cancelled, and the time of the next poll. Walks the primary key.
update windlass_branches set poll = ?3, cancels_children = ?4, poll_at = ?5 where job = ?1 and number = ?2

-- name: next
-- Reads when the next branch is due to be polled. Walks branches_poll.
select min(poll_at) from windlass_branches where poll_at is not null
