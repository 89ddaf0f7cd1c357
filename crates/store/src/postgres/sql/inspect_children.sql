-- Jobs that one job submitted, oldest first, those of its branches included. Walks jobs_parent, and jobs_branch from branch to
-- branch, as ranges and order leave no other way.
with recursive numbers as (
    (select branch from jobs where parent = $2::uuid and branch is not null order by branch limit 1)
    union all
    select n.branch from numbers
    cross join lateral (
        select j.branch from jobs j where j.parent = $2 and j.branch > numbers.branch and j.branch is not null
        order by j.branch limit 1
    ) n
), ids as materialized (
    select id from (
        (select j.id from jobs j
         where (j.parent, j.id) > ($2, coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid)) and j.parent <= $2
           and j.parent is not null and j.branch is null
         order by j.parent, j.id limit $4)
        union all
        select c.id from numbers cross join lateral (
            select j.id from jobs j
            where (j.parent, j.branch, j.id)
                  > ($2, numbers.branch, coalesce($3::uuid, '00000000-0000-0000-0000-000000000000'::uuid))
              and (j.parent, j.branch) <= ($2, numbers.branch) and j.branch is not null
            order by j.parent, j.branch, j.id limit $4
        ) c
    ) all_of_them order by id limit $4
)
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $1::int8 and r.job = j.id)
        or exists (select 1 from line l where l.serial = j.serial and l.place = j.place and l.job = j.id)),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       coalesce(j.parked, 0) = 1, j.stage
from ids join jobs j on j.id = ids.id
order by j.id
