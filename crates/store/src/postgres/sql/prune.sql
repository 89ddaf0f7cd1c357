-- name: jobs
-- Deletes ended jobs with all that is kept of them. Passes over those that someone is reviving. Answers how many.
with gone as (
    delete from jobs where id = any (array(
        select j.id from jobs j where j.id = any($1::uuid[]) and j.state = $2::int2 and j.finished_at < $6::int8 order by j.id for update skip locked
    ))
    returning id, tags, has_branches
), untagged as (
    delete from tags t using gone g
    where g.tags is not null and t.job = g.id and t.tag in (select jsonb_array_elements_text(g.tags::jsonb))
), forgotten as (
    delete from attempts a using gone g where a.job = g.id
), unheard as (
    delete from delivered_signals h using gone g where h.job = g.id
), unread as (
    delete from signals s using gone g where s.job = g.id
), untold as (
    delete from transitions s using gone g where s.job = g.id
), unwritten as (
    delete from journal e using gone g where e.job = g.id
), unkept as (
    delete from context c using gone g where c.job = g.id
), unbranched as (
    delete from branches where job = any (array(select id from gone where has_branches))
), uncounted as (
    delete from branch_counts where job = any (array(select id from gone where has_branches))
), unnamed as (
    delete from unique_names s using unnest($3::int4[], $4::text[], $5::uuid[]) as n (kind, key, job), gone g
    where s.kind = n.kind and s.name = n.key and s.job = n.job and g.id = n.job
)
select count(*) from gone

-- name: firings
-- Forgets what schedules fired and missed before $1, a bounded number each. Walks the primary keys.
with old as (
    delete from schedule_firings where ctid = any (array(
        select f.ctid from schedules s
        cross join lateral (select f.ctid from schedule_firings f where f.schedule = s.id and f.tick < $1::int8 limit 1000) f
    ))
)
delete from schedule_misses where ctid = any (array(
    select m.ctid from schedules s
    cross join lateral (select m.ctid from schedule_misses m where m.schedule = s.id and m.at < $1 and m.last < $1 limit 1000) m
))

-- name: candidates
-- The next jobs in the order of ids, at most $4, of which those that ended as $1 before $2 may go: answers each with
-- whether it may, and whether it is needed: its parent is there and not done, so that one may be retried and read it. A job that
-- is not needed never is again. Walks the primary key of jobs.
select s.id, s.old, s.old and coalesce(p.state <> 1, false), case when s.old then s.settings end, s.kind, s.submitted_at
from (
    select j.id, j.state = $1::int2 and j.finished_at < $2::int8 and ($5::text is null or k.name = $5) as old,
           j.parent, j.settings, j.kind, j.submitted_at
    from jobs j join kinds k on k.id = j.kind
    where j.id > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
    order by j.id
    limit $4
) s
left join jobs p on p.id = s.parent and s.old
order by s.id

-- name: unique_names
-- Which of some unique names still point at the jobs that took them.
select n.job from unnest($1::int4[], $2::text[], $3::uuid[]) as n (kind, key, job)
join unique_names s on s.kind = n.kind and s.name = n.key and s.job = n.job

-- name: unsuccessful_candidates
-- The same for failed and cancelled jobs, of which there is an index: passes over all others unseen.
select s.id, s.old, s.old and coalesce(p.state <> 1, false), case when s.old then s.settings end, s.kind, s.submitted_at
from (
    select j.id, j.state = $1::int2 and j.finished_at < $2::int8 and ($5::text is null or k.name = $5) as old,
           j.parent, j.settings, j.kind, j.submitted_at
    from jobs j join kinds k on k.id = j.kind
    where j.unsuccessful_state = $1 and j.id > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
    order by j.id
    limit $4
) s
left join jobs p on p.id = s.parent and s.old
order by s.id
