-- Deletes ended jobs with all that is kept of them. Passes over those that someone is reviving. Answers how many.
with gone as (
    delete from jobs where id = any (array(
        select j.id from jobs j where j.id = any($1::uuid[]) and j.state = $2::int2 and j.finished_at < $6::int8 order by j.id for update skip locked
    ))
    returning id, tags, branched
), untagged as (
    delete from tags t using gone g
    where g.tags is not null and t.job = g.id and t.tag in (select jsonb_array_elements_text(g.tags::jsonb))
), forgotten as (
    delete from attempts a using gone g where a.job = g.id
), unheard as (
    delete from heard h using gone g where h.job = g.id
), unread as (
    delete from signals s using gone g where s.job = g.id
), untold as (
    delete from steps s using gone g where s.job = g.id
), unwritten as (
    delete from journal e using gone g where e.job = g.id
), unkept as (
    delete from context c using gone g where c.job = g.id
), unbranched as (
    delete from branches where job = any (array(select id from gone where branched))
), uncounted as (
    delete from tallies where job = any (array(select id from gone where branched))
), unnamed as (
    delete from scopes s using unnest($3::int4[], $4::text[], $5::uuid[]) as n (kind, key, job), gone g
    where s.kind = n.kind and s.key = n.key and s.job = n.job and g.id = n.job
)
select count(*) from gone
