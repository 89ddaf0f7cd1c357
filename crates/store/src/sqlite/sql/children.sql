-- Inspect, as far as children and branches go: reads jobs and branches. ?1 is the span by which a job's priority moves its rank.
-- In PostgreSQL two indexes hold children (jobs_parent those outside of branches); here jobs_parent holds all; jobs_item holds
-- those in branches by their items.

-- name: children
-- Lists children of a job, oldest first: those in branch ?5, or in no branch if it is null. Walks jobs_parent.
select {{common.summary(?1)}}
from windlass_jobs j
where j.parent = ?2 and j.branch is ?5 and j.id > ?3
order by j.id
limit ?4

-- name: live_children
-- Lists the children of a job that have not ended, newest first, among the newest ?5: those in branch ?3, or, if that is null, those in no
-- branch that revision ?4 submitted. Walks jobs_parent backwards.
select {{common.summary(?1)}}
from windlass_jobs j
where j.id in (select c.id from windlass_jobs c where c.parent = ?2 and c.branch is ?3 order by c.id desc limit ?5)
  and j.state = 0 and (?3 is not null or j.parent_rev = ?4)
order by j.id desc

-- name: branch_numbers
-- Lists the branches that the children of a job are in, even if the parent was pruned and its branches with it. Jumps from one
-- number to the next along jobs_parent.
with recursive numbers (number) as (
    select min(branch) from windlass_jobs where parent = ?1 and branch is not null
    union all
    select (select min(j.branch) from windlass_jobs j where j.parent = ?1 and j.branch > n.number)
    from numbers n where n.number is not null
)
select number from numbers where number is not null

-- name: child_ends
-- Lists the children that one change of a job submitted, by id, and how they ended. Walks jobs_parent.
select j.id, j.lane, j.key, j.state, j.reason, j.failure, j.output_codec, {{common.output}}
from windlass_jobs j
where j.parent = ?1 and j.branch is null and j.parent_rev = ?2 and j.id > ?3
order by j.id
limit ?4

-- name: child_place
-- Reads the position of a job in a branch of its parent. Walks primary keys.
select j.branch, b.name, b.spawns, j.spawn, j.item, coalesce(j.item_count, 1)
from windlass_jobs j join windlass_branches b on b.job = j.parent and b.number = j.branch
where j.id = ?1

-- fragment: branch(cursor_codec, cursor)
-- The columns of a branch b; read by `read_branch`.
b.number, b.name, b.spawns, {{cursor_codec}}, {{cursor}}, b.sealed, b.merged_at, b.cancels_children, b.spawned, b.started, b.done, b.failed,
b.cancelled, b.watch, b.merge_record, b.opened_at, b.poll, b.poll_at, b.sealed_at

-- name: branches
-- Lists the branches of a job, by number. Walks the primary key of branches.
select {{branch(b.cursor_codec, b.cursor)}} from windlass_branches b where b.job = ?1 order by b.number

-- name: open_branches
-- Lists branches that are not merged, those of the newest jobs first, with their jobs and the times that were summed up, at most ?2. Where their
-- sources are is left out. Walks branches_open backwards, then primary keys.
select {{common.summary(?1)}}, {{branch(null, null)}}, t.first_start_at, t.last_end_at, t.wait_times, t.run_times
from windlass_branches b
cross join windlass_jobs j on j.id = b.job
left join windlass_branch_times t on t.job = b.job and t.branch = b.number
where b.merged_at is null
order by b.job desc, b.number desc
limit ?2

-- name: branch_ends
-- Reads the first and the last child of a branch. Walks jobs_parent from both ends.
select (select j.id from windlass_jobs j where j.parent = ?1 and j.branch = ?2 order by j.id limit 1),
       (select j.id from windlass_jobs j where j.parent = ?1 and j.branch = ?2 order by j.id desc limit 1)

-- name: branch_range
-- Lists the first children of a range of a branch, by id. Walks jobs_parent.
select {{common.summary(?1)}}, j.item, coalesce(j.item_count, 1), coalesce(j.items_counted, 0)
from windlass_jobs j
where j.parent = ?2 and j.branch = ?3 and j.id >= ?4 and j.id <= ?5
order by j.id
limit ?6

-- fragment: child
-- The columns of a child of a branch.
{{common.summary(?1)}}, j.branch, j.spawn, j.item, coalesce(j.item_count, 1), coalesce(j.items_counted, 0), j.failure,
j.output_codec, {{common.output}}, j.codec, {{common.input}}, j.data_codec, {{common.data}}

-- name: branch_children
-- Lists children of a branch, by id: all, the live ones (?6 is true) or those that have ended (?6 is false). Walks jobs_parent.
select {{child}}
from windlass_jobs j
where j.parent = ?2 and j.branch = ?3 and j.id > ?4 and (?6 is null or (j.state = 0) = ?6)
order by j.id
limit ?5

-- name: examined_children
-- Reads how many of the next ?4 children of a branch there are, and the last of them. Walks jobs_parent.
select count(*), max(id)
from (select id from windlass_jobs where parent = ?1 and branch = ?2 and id > ?3 order by id limit ?4)

-- name: branch_children_page
-- Lists children of a branch up to child ?5, by id: all, the live ones (?6 is true) or those that have ended (?6 is false). The caller stops
-- when it has enough. Walks jobs_parent.
select {{child}}
from windlass_jobs j
where j.parent = ?2 and j.branch = ?3 and j.id > ?4 and j.id <= ?5 and (?6 is null or (j.state = 0) = ?6)
order by j.id

-- name: branch_item
-- Lists the children of a branch that have an item of a spawn, or begin with it. Walks jobs_item.
select id, stage from windlass_jobs where branch = ?2 and parent = ?1 and spawn = ?3 and item = ?4 and branch is not null
order by id limit 100

-- name: child_output_sizes
-- Reads the bytes of the outputs that child_ends lists. Walks jobs_parent.
select coalesce(length({{common.output}}), 0)
from windlass_jobs j
where j.parent = ?1 and j.branch is null and j.parent_rev = ?2 and j.id > ?3
order by j.id
limit ?4

-- name: unsuccessful_children
-- Lists children of a branch that failed or were cancelled (?6), by id. Walks jobs_unsuccessful from the first child of the branch
-- on: few children are unsuccessful, and the rest of a large branch is not read. The pluses keep it from walking jobs_parent.
select {{child}}
from windlass_jobs j
where j.unsuccessful_state = ?6 and j.id > ?4 and +j.parent = ?2 and +j.branch = ?3
  and j.id >= (select min(c.id) from windlass_jobs c where c.parent = ?2 and c.branch = ?3 and c.id > ?4)
order by j.id
limit ?5
