-- Maintenance::fire_timers, as far as it admits jobs that were submitted in transactions of others; and those submits. Moves rows of arrivals
-- into jobs. Locks arrivals before jobs. SQLite admits them one by one.

-- name: append
-- Adds a job in the caller's own transaction (which names the table with its schema); a worker admits it after that transaction
-- commits.
insert into arrivals
    (id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings, codec, input, digest,
     stage)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)

-- name: read_oldest
-- Reads the oldest arrivals, at most $1. Walks the primary key; locks nothing.
select seq, id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings, codec,
       input, digest, stage
from arrivals order by seq limit $1

-- name: take
-- Deletes arrivals whose jobs are admitted by the same transaction, and returns which. Locks them by number, and skips those that
-- another process is taking. Walks the primary key.
delete from arrivals where ctid = any (array(
    select a.ctid from arrivals a where a.seq = any($1::int8[]) order by a.seq for update skip locked
))
returning seq

-- name: insert_refused
-- Inserts a job that could not be admitted as one that has ended, so that its submitter learns why. $11 is the writer of counts, $12 the
-- period of its id.
with inserted as (
    insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, state, unsuccessful_state, reason, failure,
                      finished_at, error_class)
    values ($1, $2, $2, $3, $4, 0, $5, $6, $7, $8::int2, $8, $9, $10::text, $2, {{common.error_class($10)}})
    on conflict do nothing
    returning id, lane, state, null::uuid as parent, null::int8 as branch
), to_periods as (
    insert into lane_periods (lane, period, writer) select lane, $12::int8, $11::int4 from inserted on conflict do nothing
), counted_jobs as (
    {{counts.add($11, select lane, 0, 0, 0, 0, count(*) filter (where state = 2), count(*) filter (where state = 3)
        from inserted group by lane)}}
), recorded_ends as (
    {{rollups.append({{rollups.ended_outside($2::int8, count(*) filter (where state = 2), count(*) filter (where state = 3), inserted)}})}}
)
select id from inserted

-- name: are_waiting
-- Lists which of some jobs wait to be admitted. Reads the whole table, which is short.
select id from arrivals where id = any($1::uuid[])
