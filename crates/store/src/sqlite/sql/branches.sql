-- Execution::commit and all that ends or revives a child, as far as branches go. Writes branches, and jobs for what a job is in or has
-- of branches. The ends of children are counted in columns of branches, once for each branch at the end of a transaction;
-- PostgreSQL counts in rows per connection (branch_counts), because many writers would wait for one row.

-- name: open
-- Opens a branch.
insert into windlass_branches (job, number, name, spawns, opened_at) values (?1, ?2, ?3, '[]', ?4)

-- name: mark_has_branches
-- Notes that a job has branches, which must be closed when it ends. Walks the primary key of jobs.
update windlass_jobs set has_branches = 1 where id = ?1

-- name: read_sealed
-- Reads whether a branch is sealed; no row if it does not exist. Walks the primary key.
select sealed from windlass_branches where job = ?1 and number = ?2

-- name: update
-- Writes what a change does to a branch apart from its children; what it does not name stays as it is. A branch that is watched
-- is polled from ?9 on, one whose children are being cancelled at once, one that is merged no longer unless its children are being
-- cancelled. Walks the primary key.
update windlass_branches
set spawns = coalesce(?3, spawns), cursor_codec = coalesce(?4, cursor_codec), cursor = coalesce(?5, cursor),
    merge_record = coalesce(?6, merge_record), sealed = sealed or ?7, sealed_at = case when ?7 and not sealed then ?12 else sealed_at end,
    watch = case when ?10 then null else coalesce(?8, watch) end,
    poll_at = case when ?11 then ?12
                   when cancels_children then poll_at
                   when ?10 then null
                   when ?8 is null then poll_at
                   else ?9 end,
    merged_at = case when ?10 then ?12 when ?8 is null then merged_at end,
    cancels_children = cancels_children or ?11
where job = ?1 and number = ?2

-- name: add_spawned
-- Adds ?3 to the number of children that were spawned in a branch. Walks the primary key.
update windlass_branches set spawned = spawned + ?3 where job = ?1 and number = ?2

-- name: count_items
-- Counts ?2 items of a block as done and takes ?3 promoted ones out of it. Walks the primary key of jobs.
update windlass_jobs
set items_counted = nullif(coalesce(items_counted, 0) + ?2, 0), item_count = coalesce(item_count, 1) - ?3
where id = ?1

-- name: read_member
-- Reads a job as a child and as a parent: its branch, how many children it represents that are not counted, its revision, how it
-- ended, and whether it has branches. Walks the primary key of jobs.
select parent, branch, {{common.items_left}}, rev, state, reason, has_branches is not null
from windlass_jobs where id = ?1

-- name: read_counts
-- Reads how many children of a branch have ended, by state, and what its job waits for. Walks the primary key.
select started, done, failed, cancelled, watch from windlass_branches where job = ?1 and number = ?2

-- name: write_counts
-- Writes how many children of a branch have ended, by state. Walks the primary key.
update windlass_branches set started = ?3, done = ?4, failed = ?5, cancelled = ?6 where job = ?1 and number = ?2

-- fragment: end_watch_of
-- Ends the watch of branches; they are polled only while their children are being cancelled.
update windlass_branches set watch = null, poll_at = case when cancels_children then poll_at end

-- name: end_watch
-- Ends the watch of one branch: its job was notified. Walks the primary key.
{{end_watch_of}} where job = ?1 and number = ?2

-- name: end_watches
-- Ends the watches of all branches of a job that has ended. Walks the primary key.
{{end_watch_of}} where job = ?1

-- name: cancel_children
-- Starts to cancel the children in all branches of a job that are not merged: the job was cancelled or has expired. Walks the
-- primary key.
update windlass_branches set cancels_children = 1, poll_at = ?2 where job = ?1 and merged_at is null
