-- Execution::commit and all that ends or revives a child, as far as branches go. Writes branches, branch_counts, and jobs for what a job is in
-- or has of branches. Locks jobs (by id), then branches (by job and number), at the very end branch_counts (by job and branch).
-- Ends are counted in one row per branch and connection, so that two commits do not wait for each other; SQLite counts in columns
-- of branches.

-- name: open
-- Opens branches, and marks their jobs, which are locked. What else a change says of them is written by `update`. Walks the primary key
-- of jobs.
with opened as (
    insert into branches (job, number, name, opened_at)
    select b.job, b.number, b.name, {{common.now}}
    from unnest($2::uuid[], $3::int8[], $4::text[]) as b (job, number, name)
)
update jobs set has_branches = true where id = any($2) and has_branches is null

-- name: read_sealed
-- Reads which of some branches exist, and whether they are sealed. Their jobs are locked, so that nobody changes that. Walks the
-- primary key.
select b.job, b.number, b.sealed from unnest($1::uuid[], $2::int8[]) as k (job, number)
join branches b on b.job = k.job and b.number = k.number

-- name: update
-- Writes what changes do to branches of their jobs, which are locked: spawns, cursors, seals, watches, merges, cancelled children, and
-- how many children were spawned. A branch whose children are being cancelled is polled at once, a watched one after its interval;
-- either moves the gate of timers. Walks the primary key.
with {{common.clock}}, updated as (
    update branches b
    set spawns = coalesce(u.spawns, b.spawns), cursor_codec = coalesce(u.codec, b.cursor_codec),
        cursor = coalesce(u.cursor, b.cursor), sealed = b.sealed or u.seal,
        sealed_at = case when u.seal and not b.sealed then clock.now else b.sealed_at end, merge_record = coalesce(u.merge_record, b.merge_record),
        watch = case when not u.merge then coalesce(u.watch, b.watch) end,
        merged_at = case when u.merge then clock.now when u.watch is null then b.merged_at end,
        cancels_children = b.cancels_children or u.cancels_children,
        poll_at = case when u.cancels_children then clock.now
                       when b.cancels_children and b.poll_at is not null then b.poll_at
                       when u.merge and not b.cancels_children then null
                       when u.watch is not null then clock.now + u.poll_interval
                       else b.poll_at end,
        spawned = b.spawned + u.spawned
    from clock, unnest($2::uuid[], $3::int8[], $4::text[], $5::int2[], $6::bytea[], $7::bool[], $8::text[], $9::int8[],
                       $10::text[], $11::bool[], $12::bool[], $13::int8[])
         as u (job, number, spawns, codec, cursor, seal, watch, poll_interval, merge_record, merge, cancels_children, spawned)
    where b.job = u.job and b.number = u.number
    returning u.cancels_children or u.watch is not null as is_polled
)
{{gates.bump_timers($14, exists (select from updated where is_polled))}}

-- name: count_items
-- Counts items of blocks as done and takes promoted ones out of them; the jobs are locked. Returns how many are left of each, and how
-- many were accounted for: if fewer than none are left, the caller rolls back. Walks the primary key of jobs.
update jobs j set item_count = coalesce(j.item_count, 1) - k.promoted, items_counted = coalesce(j.items_counted, 0) + k.counted
from unnest($1::uuid[], $2::int4[], $3::int4[]) as k (id, counted, promoted) where j.id = k.id
returning j.item_count - j.items_counted, k.counted + k.promoted

-- name: add_counts
-- Counts how children of branches have ended, or that some have started, in the row of each branch that belongs to the connection ($7),
-- if the branch exists: the last statement of a transaction. Locks branch_counts in the order given, which is by job and branch. Walks
-- the primary keys of branches and branch_counts.
insert into branch_counts as counts (job, branch, writer, started, done, failed, cancelled)
select k.job, k.branch, $7::int4, k.started, k.done, k.failed, k.cancelled
from unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])
     as k (job, branch, started, done, failed, cancelled)
where exists (select from branches b where b.job = k.job and b.number = k.branch)
order by k.job, k.branch
on conflict (job, branch, writer) do update
set started = counts.started + excluded.started, done = counts.done + excluded.done, failed = counts.failed + excluded.failed,
    cancelled = counts.cancelled + excluded.cancelled

-- fragment: sums
-- Joins the sums of a branch's counts over all connections. Walks the primary key of branch_counts.
cross join lateral (
    select coalesce(sum(started), 0)::int8 as started, coalesce(sum(done), 0)::int8 as done,
           coalesce(sum(failed), 0)::int8 as failed, coalesce(sum(cancelled), 0)::int8 as cancelled
    from branch_counts where job = b.job and branch = b.number
) sums

-- name: read_counts
-- Reads, of some branches those that their jobs watch, what they watch for and the sums of what has ended. Sent after the commit of the
-- transaction that counted: of two that commit at once, the later one sees the counts of both. Walks the primary keys of branches
-- and branch_counts; locks nothing.
select b.job, b.number, b.watch, sums.started, sums.done, sums.failed, sums.cancelled
from unnest($1::uuid[], $2::int8[]) as k (job, number)
join branches b on b.job = k.job and b.number = k.number and b.watch is not null
{{sums}}

-- name: lock
-- Locks branches by job and number, before read_counts is sent: what that sees then holds until the end of the transaction, but for
-- more ends. Their jobs are locked before. Walks the primary key.
select from unnest($1::uuid[], $2::int8[]) as k (job, number)
join branches b on b.job = k.job and b.number = k.number
order by b.job, b.number for update of b

-- name: end_watches
-- Ends the watches of all branches of jobs that have ended. The children in branches that are not merged are cancelled if the job was
-- cancelled or has expired (reason $4), which moves the gate of timers. Walks the primary keys of jobs and branches. SQLite has a
-- statement of its own for cancelling.
with {{common.clock}}, ended as (
    update branches b
    set watch = null, cancels_children = b.cancels_children or (parent.cancels_children and b.merged_at is null),
        poll_at = case when parent.cancels_children and b.merged_at is null then clock.now when b.cancels_children then b.poll_at end
    from clock, (
        select id, state = 3 or coalesce(reason = $4::int2, false) as cancels_children
        from jobs where id = any($3::uuid[]) and state <> 0 and has_branches
    ) parent
    where b.job = parent.id
    returning parent.cancels_children and b.merged_at is null as cancels_children
)
{{gates.bump_timers($2, exists (select from ended where cancels_children))}}
