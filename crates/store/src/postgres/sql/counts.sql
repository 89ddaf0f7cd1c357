-- The number of jobs in each state, per lane: written by every statement that adds, moves or deletes jobs, and read by Inspect. A count is the sum
-- of its rows, one per lane and connection ($writer), so that two commits do not wait for each other. SQLite has one row per lane.
-- Locks job_counts after everything else.

-- fragment: add(writer, differences)
-- Adds differences, which a query returns per lane in the order of the columns, to the rows of this connection.
insert into job_counts as counts (lane, writer, live, scheduled, waiting, done, failed, cancelled)
select d.lane, {{writer}}::int4, d.live, d.scheduled, d.waiting, d.done, d.failed, d.cancelled
from ({{differences}}) as d (lane, live, scheduled, waiting, done, failed, cancelled)
order by d.lane
on conflict (lane, writer) do update
set live = counts.live + excluded.live, scheduled = counts.scheduled + excluded.scheduled, waiting = counts.waiting + excluded.waiting,
    done = counts.done + excluded.done, failed = counts.failed + excluded.failed, cancelled = counts.cancelled + excluded.cancelled

-- fragment: ended(writer, ended)
-- Counts jobs that were running and have ended: the CTE has their lanes, and how many are done, failed and were cancelled.
{{add({{writer}}, select lane, -sum(done + failed + cancelled), 0, 0, sum(done), sum(failed), sum(cancelled) from {{ended}} group by lane)}}

-- fragment: old_location
-- Where a live job, which is locked, was before the statement: whether it was scheduled, and whether it was parked.
not {{common.is_parked}} and {{common.in_timers}} as was_scheduled, {{common.is_parked}} as was_parked

-- fragment: left_live(writer, failed, cancelled, jobs)
-- Counts jobs that have ended in one state, wherever they were: the CTE has their lanes and old locations.
{{add({{writer}}, select lane, -count(*), -count(*) filter (where was_scheduled), -count(*) filter (where was_parked), 0, {{failed}},
    {{cancelled}} from {{jobs}} group by lane)}}

-- name: add_differences
-- Adds differences to the counts of lanes: $1 the writer, $2 lanes, each once, $3 to $8 the columns.
{{add($1, select * from unnest($2::int4[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[]))}}

-- name: read
-- Reads the counts of all lanes, and how many jobs of each are claimed, as of one moment. Reads the whole table, which is short, and all
-- claims, which are few; walks the primary key of jobs (`offset 0` keeps it from walking all jobs instead, and `materialized` from reading
-- the claims again for each lane).
with running as materialized (
    select j.lane, count(*) as jobs
    from claims k cross join lateral unnest(k.jobs, k.epochs) as p (id, epoch)
    cross join lateral (select lane from jobs where id = p.id and epoch = p.epoch and state = 0 offset 0) j
    group by j.lane
), counts as (
    select lane, sum(live)::int8 as live, sum(scheduled)::int8 as scheduled, sum(waiting)::int8 as waiting, sum(done)::int8 as done,
           sum(failed)::int8 as failed, sum(cancelled)::int8 as cancelled
    from job_counts group by lane
)
select c.lane, c.live, c.scheduled, c.waiting, c.done, c.failed, c.cancelled, coalesce(r.jobs, 0)
from counts c left join running r on r.lane = c.lane

-- name: recount
-- Counts the jobs of all lanes by their rows, beside the counts that are maintained, as of one moment; returns the lanes where they
-- differ. Reads all jobs: for tests, and for people who doubt the counts.
with kept as (
    select lane, sum(live)::int8 as live, sum(scheduled)::int8 as scheduled, sum(waiting)::int8 as waiting, sum(done)::int8 as done,
           sum(failed)::int8 as failed, sum(cancelled)::int8 as cancelled
    from job_counts group by lane
), found as (
    select j.lane, count(*) filter (where j.state = 0) as live,
           count(*) filter (where j.state = 0 and not {{common.is_parked}} and {{common.in_timers}}) as scheduled,
           count(*) filter (where j.state = 0 and {{common.is_parked}}) as waiting,
           count(*) filter (where j.state = 1) as done, count(*) filter (where j.state = 2) as failed,
           count(*) filter (where j.state = 3) as cancelled
    from jobs j group by j.lane
)
select lane, coalesce(k.live, 0), coalesce(k.scheduled, 0), coalesce(k.waiting, 0), coalesce(k.done, 0), coalesce(k.failed, 0),
       coalesce(k.cancelled, 0), coalesce(f.live, 0), coalesce(f.scheduled, 0), coalesce(f.waiting, 0), coalesce(f.done, 0),
       coalesce(f.failed, 0), coalesce(f.cancelled, 0)
from kept k full join found f using (lane)
where (coalesce(k.live, 0), coalesce(k.scheduled, 0), coalesce(k.waiting, 0), coalesce(k.done, 0), coalesce(k.failed, 0),
       coalesce(k.cancelled, 0))
      <> (coalesce(f.live, 0), coalesce(f.scheduled, 0), coalesce(f.waiting, 0), coalesce(f.done, 0), coalesce(f.failed, 0),
          coalesce(f.cancelled, 0))
