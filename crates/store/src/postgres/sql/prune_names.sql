-- Which of some unique names still point at the jobs that took them.
select n.job from unnest($1::int4[], $2::text[], $3::uuid[]) as n (kind, key, job)
join scopes s on s.kind = n.kind and s.key = n.key and s.job = n.job
