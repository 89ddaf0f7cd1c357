-- Inspect::jobs and Inspect::count_jobs. A list walks one index and compares the jobs that it finds there with the filter: most statements here
-- read ids from one index, newest first, and `matching` compares. The caller repeats them until it has enough. Reads only, and locks
-- nothing.
--
-- Parameters of all that read ids: $1 the id below which and $2 the one from which on they are, or null; $3 how many at most; $4 what is
-- looked up.

-- fragment: page(id)
-- The order and the limits of a read of ids.
{{id}} < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
  and {{id}} >= coalesce($2::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
order by {{id}} desc
limit $3::int8

-- fragment: page_of(column, value)
-- The same for the jobs that have a value in a column. As row comparisons, which no other index can serve: the planner has no choice.
({{column}}, j.id) < ({{value}}, coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid))
  and ({{column}}, j.id) >= ({{value}}, coalesce($2::uuid, '00000000-0000-0000-0000-000000000000'::uuid))
  and {{column}} is not null
order by {{column}} desc, j.id desc
limit $3::int8

-- name: all
-- Reads the ids of all jobs. Walks the primary key backwards.
select j.id from jobs j where {{page(j.id)}}

-- name: ranges
-- Reads the ids of all jobs in ranges, which are sorted, the newest first: $1 their ends (excluded), $2 their beginnings, $3 how many ids at
-- most. Walks the primary key backwards in each range in turn, and stops when it has enough; a sort would read them all.
select j.id
from unnest($1::uuid[], $2::uuid[]) as r (high, low)
cross join lateral (select j.id from jobs j where j.id < r.high and j.id >= r.low order by j.id desc limit $3::int8) j
limit $3

-- name: periods
-- Reads in which periods from $1 to $2 jobs of some lanes ($4) were submitted, newest first, and how many rows say so: $3 rows at most. Walks
-- the primary key of lane_periods backwards for each lane.
select p.period, count(*)
from (
    select p.period from unnest($4::int4[]) as l (lane)
    cross join lateral (
        select p.period from lane_periods p where p.lane = l.lane and p.period >= $1::int8 and p.period <= $2::int8
        order by p.period desc limit $3::int8
    ) p
    order by p.period desc
    limit $3
) p
group by p.period
order by p.period desc

-- name: tag
-- Reads the ids of jobs with a tag. Walks the primary key of tags backwards.
select t.job from tags t where t.tag = $4::text and {{page(t.job)}}

-- name: unsuccessful
-- Reads the ids of failed or cancelled jobs ($4). Walks jobs_unsuccessful backwards.
select j.id from jobs j where {{page_of(j.unsuccessful_state, $4::int2)}}

-- name: error_class
-- Reads the ids of unsuccessful jobs whose error has a class. Walks jobs_error_class backwards.
select j.id from jobs j where {{page_of(j.error_class, $4::text)}}

-- name: unsuccessful_stage
-- Reads the ids of unsuccessful jobs in a stage. Walks jobs_unsuccessful_stage backwards.
select j.id from jobs j where {{page_of(j.unsuccessful_stage, $4::text)}}

-- name: parked_stage
-- Reads the ids of parked jobs in a stage. Walks the primary key of parked_jobs backwards.
select p.job from parked_jobs p where p.stage = $4::text and {{page(p.job)}}

-- name: key
-- Reads the ids of jobs with a key, one of each kind at most. Walks jobs_key for each kind, and sorts.
with found as materialized (
    select j.id from jobs j where j.kind = any (array(select k.id from kinds k)) and j.key = $4::text
)
select f.id from found f where {{page(f.id)}}

-- name: key_prefix
-- Reads the ids of jobs whose keys are from $4 on and below $5. Walks jobs_key for each kind, and sorts.
with found as materialized (
    select j.id from jobs j where j.kind = any (array(select k.id from kinds k)) and j.key >= $4::text and j.key < $5::text
)
select f.id from found f where {{page(f.id)}}

-- name: ready
-- Reads the ids of jobs that are ready, and of others that are held. Reads all of ready, serial_waiting, paused_jobs and cancel_requests, and
-- sorts.
select p.job
from (
    select r.job from ready r union all select w.job from serial_waiting w
    union all select h.job from paused_jobs h union all select c.job from cancel_requests c
) p
where {{page(p.job)}}

-- name: timers
-- Reads the ids of jobs that wait for a time. Reads all timers, and sorts.
select t.job from timers t where t.purpose = 0 and {{page(t.job)}}

-- name: claims
-- Reads the ids of jobs that are claimed, or were. Reads all claims, which are few, and sorts.
select p.id from claims c cross join lateral unnest(c.jobs) as p (id) where {{page(p.id)}}

-- name: parked
-- Reads the ids of parked jobs. Reads all of parked_jobs, and sorts.
select p.job from parked_jobs p where {{page(p.job)}}

-- fragment: size(entries)
-- Counts the entries of an index, $1 at most.
select count(*) from (select {{entries}} limit $1::int8) s

-- name: size_of_tag
-- Counts the jobs with the tag $2, up to $1. Walks the primary key of tags.
{{size(from tags t where t.tag = $2::text)}}

-- name: size_of_error_class
-- Counts the unsuccessful jobs whose error has the class $2, up to $1. Walks jobs_error_class.
{{size(from jobs j where j.error_class = $2::text)}}

-- name: size_of_unsuccessful_stage
-- Counts the unsuccessful jobs in the stage $2, up to $1. Walks jobs_unsuccessful_stage.
{{size(from jobs j where j.unsuccessful_stage = $2::text)}}

-- name: size_of_parked_stage
-- Counts the parked jobs in the stage $2, up to $1. Walks the primary key of parked_jobs.
{{size(from parked_jobs p where p.stage = $2::text)}}

-- name: size_of_key_prefix
-- Counts the jobs whose keys are from $2 on and below $3, up to $1. Walks jobs_key for each kind.
{{size(from jobs j where j.kind = any (array(select k.id from kinds k)) and j.key >= $2::text and j.key < $3::text)}}

-- name: size_of_timers
-- Counts timers, up to $1. Walks the primary key.
{{size(from timers t)}}

-- name: counts
-- Reads the counts of all lanes, as counts.read, without those that run. Reads the whole table, which is short.
select c.lane, sum(c.live)::int8, sum(c.scheduled)::int8, sum(c.waiting)::int8, sum(c.done)::int8, sum(c.failed)::int8, sum(c.cancelled)::int8
from job_counts c group by c.lane

-- fragment: matches
-- Whether a job is one of $2 and matches a filter, but for where it is: parameters 3 and 6 to 14.
j.id = any($2::uuid[])
      and ($3::int2 is null or j.state = $3)
      and ($6::int4[] is null or j.lane = any($6))
      and ($7::text is null or exists (select 1 from tags t where t.tag = $7 and t.job = j.id))
      and ($8::text is null or j.key = $8)
      and ($9::text is null or starts_with(j.key, $9))
      and ($10::text is null or j.error_class = $10)
      and ($11::text is null or j.stage = $11)
      and (not $12::bool or j.parent is null)

-- fragment: is_there
-- Whether a job, by the columns of the statement that say where it is, is where the filter wants it.
($4::bool is null or is_ready = $4) and ($5::bool is null or is_scheduled = $5) and ($13::bool is null or is_parked = $13)

-- name: matching
-- Reads those of the jobs $2 that match a filter, newest first. $1 is the span by which a job's priority moves its rank. Walks the primary key.
select * from (
    select {{common.summary($1)}}
    from jobs j
    where {{matches}}
    order by j.id desc
) matching
where {{is_there}}

-- name: count_matching
-- Counts those of the jobs $2 that match a filter by what decides their state: the column `state`, and where a live job is. Walks the primary
-- key.
select state, is_ready, is_scheduled, is_parked, count(*) from (
    select j.state, j.state = 0 and {{common.is_ready($1)}} as is_ready, j.state = 0 and {{common.in_timers}} as is_scheduled,
           {{common.is_parked}} as is_parked
    from jobs j
    where {{matches}}
) matching
where {{is_there}}
group by 1, 2, 3, 4
