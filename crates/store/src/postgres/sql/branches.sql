-- name: orphan
-- Jobs that have branches have ended: nobody waits for those any more. The branches of one that was made to end ($2 is the
-- number of that reason) and that were not merged are cut, and the gate of the timers moves. Walks the primary keys of jobs
-- and branches.
with clock as materialized (
    select coalesce($3::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), over as (
    update branches b
    set watch = null, cancels_children = b.cancels_children or (j.cancels_children and b.merged_at is null),
        poll_at = case when j.cancels_children and b.merged_at is null then clock.now when b.cancels_children then b.poll_at end
    from clock, (
        select id, state = 3 or coalesce(reason = $2::int2, false) as cancels_children
        from jobs where id = any($1::uuid[]) and state <> 0 and has_branches
    ) j
    where b.job = j.id
    returning j.cancels_children and b.merged_at is null as cancels_children
)
insert into gates (queue, writer, version)
select 0, $4::int8, (random() * 1e12)::int8 where exists (select from over where cancels_children)
on conflict (queue, writer) do update set version = gates.version + 1

-- name: read_existing
-- Of some branches those that are there, and whether they are sealed. The jobs are locked, so that nobody changes that.
-- Walks the primary key.
select b.job, b.number, b.sealed from unnest($1::uuid[], $2::int8[]) as k (job, number)
join branches b on b.job = k.job and b.number = k.number

-- name: update
-- Writes what steps do to branches of their jobs, which are locked: more spawns, cursors, seals, watches, merges and cuts;
-- and adds to what was spawned. What is to be looked at moves the gate of the timers; what is cut is looked at no later
-- for it. Walks the primary key of branches.
with clock as materialized (
    select coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8) as now
), grown as (
    update branches b
    set spawns = coalesce(g.spawns, b.spawns), cursor_codec = coalesce(g.codec, b.cursor_codec),
        cursor = coalesce(g.cursor, b.cursor), sealed = b.sealed or g.seal, merge_record = coalesce(g.merge_record, b.merge_record),
        watch = case when not g.merge then coalesce(g.watch, b.watch) end,
        merged_at = case when g.merge then clock.now when g.watch is null then b.merged_at end, cancels_children = b.cancels_children or g.cancels_children,
        poll_at = case when g.cancels_children then clock.now when b.cancels_children and b.poll_at is not null then b.poll_at
                  when g.merge and not b.cancels_children then null when g.watch is not null then clock.now + g.pace else b.poll_at end,
        spawned = b.spawned + g.spawned
    from clock, unnest($2::uuid[], $3::int8[], $4::text[], $5::int2[], $6::bytea[], $7::bool[], $8::text[], $9::int8[],
                       $10::text[], $11::bool[], $12::bool[], $13::int8[])
         as g (job, number, spawns, codec, cursor, seal, watch, pace, merge_record, merge, cancels_children, spawned)
    where b.job = g.job and b.number = g.number
    returning g.cancels_children or g.watch is not null as polled
)
insert into gates (queue, writer, version)
select 0, $14::int8, (random() * 1e12)::int8 where exists (select from grown where polled)
on conflict (queue, writer) do update set version = gates.version + 1

-- name: count_items
-- Notes of blocks, which are locked, how many of their items are counted and how many have become jobs of their own. Walks
-- the primary key of jobs. Answers how many are left of each: if that is less than none, whoever asked rolls back.
update jobs j set item_count = coalesce(j.item_count, 1) - k.promoted, items_counted = coalesce(j.items_counted, 0) + k.counted
from unnest($1::uuid[], $2::int4[], $3::int4[]) as k (id, counted, promoted) where j.id = k.id
returning j.item_count - j.items_counted, k.counted + k.promoted

-- name: watched_sums
-- Of some branches those that their jobs watch, with what they watch for and the sum of what has ended in them. Sent after
-- the commit of whoever counted: of two that commit at once, the later one sees what both have counted. Walks the primary
-- keys of branches and tallies; locks nothing.
select b.job, b.number, b.watch, t.started, t.done, t.failed, t.cancelled
from unnest($1::uuid[], $2::int8[]) as k (job, number)
join branches b on b.job = k.job and b.number = k.number and b.watch is not null
cross join lateral (
    select coalesce(sum(started), 0)::int8 as started, coalesce(sum(done), 0)::int8 as done,
           coalesce(sum(failed), 0)::int8 as failed, coalesce(sum(cancelled), 0)::int8 as cancelled
    from branch_counts where job = b.job and branch = b.number
) t

-- name: open
-- Opens branches, which are not there, and notes at their jobs, which are locked, that they have some. What else is said of
-- them is written by branches.update. Walks the primary key of jobs.
with opened as (
    insert into branches (job, number, name, opened_at)
    select o.job, o.number, o.name, coalesce($1::int8, (extract(epoch from clock_timestamp()) * 1000000)::int8)
    from unnest($2::uuid[], $3::int8[], $4::text[]) as o (job, number, name)
)
update jobs set has_branches = true where id = any($2) and has_branches is null

-- name: count
-- Counts how children of branches have ended, or that some have begun, in the lane $7 of each branch, as far as it is there:
-- the last statement of a transaction. Locks tallies in the order given, which is by job and branch. Walks the primary keys
-- of branches and tallies.
insert into branch_counts as t (job, branch, writer, started, done, failed, cancelled)
select k.job, k.branch, $7::int4, k.started, k.done, k.failed, k.cancelled
from unnest($1::uuid[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])
     as k (job, branch, started, done, failed, cancelled)
where exists (select from branches b where b.job = k.job and b.number = k.branch)
order by k.job, k.branch
on conflict (job, branch, writer) do update
set started = t.started + excluded.started, done = t.done + excluded.done, failed = t.failed + excluded.failed,
    cancelled = t.cancelled + excluded.cancelled

-- name: lock
-- Locks branches by job and number, before branches.watched_sums is sent: what it sees then holds until the end of the transaction, but
-- for more ends. Their jobs are locked before. Walks the primary key.
select from unnest($1::uuid[], $2::int8[]) as k (job, number)
join branches b on b.job = k.job and b.number = k.number
order by b.job, b.number for update of b
