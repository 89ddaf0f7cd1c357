-- Maintenance::prune: deletes ended jobs with all their rows, and old records of schedules. Locks jobs by id, and skips those that someone is
-- reviving. SQLite deletes one job after the other.

-- fragment: candidates_where(filter)
-- The next $4 jobs by id: whether each may go because it ended in state $1 before $2; whether it is needed, because its parent exists and is
-- not done (the parent may be retried and read it); and what decides whether it holds its unique name. A job that is not needed
-- never becomes needed again.
select s.id, s.is_old, s.is_old and coalesce(p.state <> 1, false), case when s.is_old then s.settings end, s.kind, s.submitted_at,
       case when s.is_old then s.tags end
from (
    select j.id, j.state = $1::int2 and j.finished_at < $2::int8 and ($5::text is null or k.name = $5) as is_old,
           j.parent, j.settings, j.kind, j.submitted_at, j.tags
    from jobs j join kinds k on k.id = j.kind
    where {{filter}} j.id > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
    order by j.id
    limit $4
) s
left join jobs p on p.id = s.parent and s.is_old
order by s.id

-- name: candidates
-- Reads the next jobs of all states. Walks the primary key.
{{candidates_where()}}

-- name: unsuccessful_candidates
-- Reads the next failed or cancelled jobs. Walks jobs_unsuccessful.
{{candidates_where(j.unsuccessful_state = $1 and)}}

-- name: unique_names
-- Lists the jobs to which some unique names still belong. Walks the primary key.
select n.job from unnest($1::int4[], $2::text[], $3::uuid[]) as n (kind, key, job)
join unique_names s on s.kind = n.kind and s.name = n.key and s.job = n.job

-- name: jobs
-- Deletes ended jobs with all their rows, and returns how many. Skips those that someone is reviving. $9 is the writer of counts. Walks
-- primary keys.
with deleted as (
    delete from jobs where id = any (array(
        select j.id from jobs j where j.id = any($1::uuid[]) and j.state = $2::int2 and j.finished_at < $6::int8 order by j.id for update skip locked
    ))
    returning id, has_branches, lane, state
), counted_jobs as (
    {{counts.add($9, select lane, 0, 0, 0, -count(*) filter (where state = 1), -count(*) filter (where state = 2),
        -count(*) filter (where state = 3) from deleted group by lane)}}
), deleted_tags as (
    delete from tags t using unnest($7::uuid[], $8::text[]) as x (job, tag), deleted d
    where d.id = x.job and t.job = x.job and t.tag = x.tag
), deleted_attempts as (
    delete from attempts a using deleted d where a.job = d.id
), deleted_deliveries as (
    delete from delivered_signals s using deleted d where s.job = d.id
), deleted_signals as (
    delete from signals s using deleted d where s.job = d.id
), deleted_transitions as (
    delete from transitions s using deleted d where s.job = d.id
), deleted_entries as (
    delete from journal e using deleted d where e.job = d.id
), deleted_context as (
    delete from context c using deleted d where c.job = d.id
), deleted_branches as (
    delete from branches where job = any (array(select id from deleted where has_branches))
), deleted_counts as (
    delete from branch_counts where job = any (array(select id from deleted where has_branches))
), deleted_times as (
    delete from branch_times where job = any (array(select id from deleted where has_branches))
), deleted_names as (
    delete from unique_names s using unnest($3::int4[], $4::text[], $5::uuid[]) as n (kind, key, job), deleted d
    where s.kind = n.kind and s.name = n.key and s.job = n.job and d.id = n.job
)
select count(*), array(select distinct lane from deleted) from deleted

-- name: periods
-- Deletes the periods $2, whose ids are from $3 on and below $4, of those of the lanes $1 that have no jobs in them any more: the jobs
-- were deleted by an earlier statement. Skips those that another process is deleting. Walks primary keys.
delete from lane_periods where ctid = any (array(
    select p.ctid from unnest($2::int8[], $3::uuid[], $4::uuid[]) as d (period, low, high)
    cross join lateral (
        select array(select distinct j.lane from jobs j where j.id >= d.low and j.id < d.high) as lanes
    ) kept
    join lane_periods p on p.lane = any($1::int4[]) and p.period = d.period and p.lane <> all(kept.lanes)
    for update of p skip locked
))

-- name: firings
-- Deletes what schedules fired and missed before $1, at most 1,000 rows each per schedule. Walks the primary keys.
with deleted_firings as (
    delete from schedule_firings where ctid = any (array(
        select f.ctid from schedules s
        cross join lateral (select f.ctid from schedule_firings f where f.schedule = s.id and f.tick < $1::int8 limit 1000) f
    ))
)
delete from schedule_misses where ctid = any (array(
    select m.ctid from schedules s
    cross join lateral (select m.ctid from schedule_misses m where m.schedule = s.id and m.at < $1 and m.last < $1 limit 1000) m
))
