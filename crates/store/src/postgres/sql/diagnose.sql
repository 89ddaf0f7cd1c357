-- Diagnose. Reads only, and locks nothing. `server` and `tables` name no table of the store, so that they work on any schema version.

-- name: server
-- Reads the server's version, the settings that durability depends on, whether it is a standby, whether transactions are read-only by
-- default, whether this role may write to the schema $1 (or may create it), and for how many seconds the oldest transaction has been open.
-- SQLite has no server: it checks its file.
select current_setting('server_version'), current_user::text,
       current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
       pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
       case when to_regnamespace($1::text) is null then has_database_privilege(current_database(), 'create')
            else coalesce((select bool_and(has_table_privilege(c.oid, 'insert') and has_table_privilege(c.oid, 'update')
                                           and has_table_privilege(c.oid, 'delete'))
                           from pg_class c where c.relnamespace = to_regnamespace($1) and c.relkind = 'r'), true) end,
       (select coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::int8
        from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid())

-- name: tables
-- Lists the tables of the schema $1, largest first, with their sizes and how many live and dead rows the statistics count.
select c.relname::text, pg_total_relation_size(c.oid), coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0)
from pg_class c left join pg_stat_user_tables s on s.relid = c.oid
where c.relnamespace = to_regnamespace($1::text) and c.relkind in ('r', 'p')
order by 2 desc, 1

-- name: oldest_ready
-- Reads the first ready job of each lane, and of each lane of suspects (negative numbers). Walks the primary keys of ready and jobs.
select q.name, k.name, l.version, j.due_at
from lanes l
join queues q on q.id = l.queue
join kinds k on k.id = l.kind
cross join lateral (
    (select r.job from ready r where r.lane = l.id order by r.rank, r.job limit 1)
    union all
    (select r.job from ready r where r.lane = -l.id order by r.rank, r.job limit 1)
) first
join jobs j on j.id = first.job

-- name: suspects
-- Counts ready suspects, up to a cap. Walks the primary key of ready.
select count(*) from (select from ready where lane < 0 limit $1) s

-- name: unhandled_failures
-- Counts failed jobs that are not in a merged branch, among the newest $1. Walks jobs_unsuccessful backwards, then the primary key of
-- branches.
select count(*)
from (select j.parent, j.branch from jobs j where j.unsuccessful_state = 2 order by j.id desc limit $1) newest
where not exists (
    select 1 from branches b where b.job = newest.parent and b.number = newest.branch and b.merged_at is not null
)

-- fragment: counts
-- How the children of the branch b have ended: the sum of one row per writer. SQLite has columns.
cross join lateral (
    select coalesce(sum(done), 0)::int8 as done, coalesce(sum(failed), 0)::int8 as failed, coalesce(sum(cancelled), 0)::int8 as cancelled
    from branch_counts where job = b.job and branch = b.number
) t

-- name: awaited_branches
-- Reads branches that their job waits for, the first to be polled first, among a limited number. Walks branches_poll and the primary key
-- of branch_counts.
select b.job, b.name, b.merge_record, b.spawned, t.done, t.failed, t.cancelled, b.poll_at
from (select * from branches where poll_at is not null order by poll_at limit $1) b
{{counts}}
where b.watch is not null and not b.cancels_children

-- name: orphaned_branches
-- Reads branches whose job has ended while children have not, among a limited number of the newest. Walks primary keys.
select b.job, b.name, b.merge_record, b.spawned, t.done, t.failed, t.cancelled, b.poll_at
from (select * from branches order by job desc, number desc limit $1) b
join jobs j on j.id = b.job and j.state > 0
{{counts}}
where not b.cancels_children and b.spawned > t.done + t.failed + t.cancelled
