-- name: write_counts
-- Writes how the children of a branch have ended. Walks the primary key.
update windlass_branches set started = ?3, done = ?4, failed = ?5, cancelled = ?6 where job = ?1 and number = ?2

-- name: cancel_children
-- A job was made to end: its branches are cut, unless they were merged. Walks the primary key.
update windlass_branches set cancels_children = 1, poll_at = ?2 where job = ?1 and merged_at is null

-- name: update
-- What a change does to a branch beside its children: what it does not name stays as it is. A branch that is watched is
-- looked at from ?9 on, one that is cut at once, and one that is merged no longer unless it is cut. Walks the primary key.
update windlass_branches
set spawns = coalesce(?3, spawns), cursor_codec = coalesce(?4, cursor_codec), cursor = coalesce(?5, cursor),
    merge_record = coalesce(?6, merge_record), sealed = sealed or ?7,
    watch = case when ?10 then null else coalesce(?8, watch) end,
    poll_at = case when ?11 then ?12
                   when cancels_children then poll_at
                   when ?10 then null
                   when ?8 is null then poll_at
                   else ?9 end,
    merged_at = case when ?10 then ?12 when ?8 is null then merged_at end,
    cancels_children = cancels_children or ?11
where job = ?1 and number = ?2

-- name: count_items
-- So many items of a block have ended well (?2), and others take the place of so many (?3). Walks the primary key.
update windlass_jobs set items_counted = nullif(coalesce(items_counted, 0) + ?2, 0), item_count = coalesce(item_count, 1) - ?3 where id = ?1

-- name: end_watch
-- The job is told of a branch: its watch is over, and it is looked at no longer unless it is cut. Walks the primary key.
update windlass_branches set watch = null, poll_at = case when cancels_children then poll_at end
where job = ?1 and number = ?2

-- name: open
-- Opens a branch. Walks the primary key.
insert into windlass_branches (job, number, name, spawns, opened_at) values (?1, ?2, ?3, '[]', ?4)

-- name: mark_parent
-- Notes that a job has branches, which are to be seen to when it ends. Walks the primary key.
update windlass_jobs set has_branches = 1 where id = ?1

-- name: is_sealed
-- Whether a branch is sealed, if there is one of that number. Walks the primary key.
select sealed from windlass_branches where job = ?1 and number = ?2

-- name: add_spawned
-- So many more children were spawned in a branch. Walks the primary key.
update windlass_branches set spawned = spawned + ?3 where job = ?1 and number = ?2

-- name: count
-- How the children of a branch have ended, and what its job wants to be told of. Walks the primary key.
select started, done, failed, cancelled, watch from windlass_branches where job = ?1 and number = ?2

-- name: member
-- A job as far as branches go: the one it is in, how many children it stands for that are not counted, its revision, how it
-- ended, and whether it has branches. Walks the primary key.
select parent, branch, coalesce(item_count, 1) - coalesce(items_counted, 0), rev, state, reason, has_branches is not null
from windlass_jobs where id = ?1

-- name: end_watches
-- A job has ended: it wants to be told of no branch any more. Walks the primary key.
update windlass_branches set watch = null, poll_at = case when cancels_children then poll_at end where job = ?1
