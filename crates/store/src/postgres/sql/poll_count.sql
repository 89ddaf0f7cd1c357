-- Counts children of a branch, $4 of them after $3: done, failed, cancelled, live; and answers the last one, if there may be
-- more. Walks jobs_branch, as ranges and order leave no other way.
with page as materialized (
    select id, state, coalesce(items, 1) - coalesce(tallied, 0) as items, coalesce(tallied, 0) as tallied from jobs
    where (parent, branch, id) > ($1::uuid, $2::int8, $3::uuid) and (parent, branch) <= ($1, $2) and branch is not null
    order by parent, branch, id
    limit $4::int8
)
select (coalesce(sum(tallied), 0) + coalesce(sum(items) filter (where state = 1), 0))::int8,
       coalesce(sum(items) filter (where state = 2), 0)::int8, coalesce(sum(items) filter (where state = 3), 0)::int8,
       coalesce(sum(items) filter (where state = 0), 0)::int8,
       case when count(*) = $4 then (select id from page order by id desc limit 1) end
from page
