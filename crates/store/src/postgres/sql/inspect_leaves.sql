-- Of $7 children of a branch, by id, at most $6, of the states in $5, if it is given; and in each row, of which there is at
-- least one, the last child looked at, if there may be more. Walks jobs_branch, as ranges and order leave no other way.
with page as materialized (
    select id, state from jobs
    where (parent, branch, id) > ($2::uuid, $3::int8, coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'::uuid))
      and (parent, branch) <= ($2, $3) and branch is not null
    order by parent, branch, id
    limit $7::int8
), meant as materialized (
    select id from page where $5::int2[] is null or state = any($5) order by id limit $6::int8
)
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $1::int8 and r.job = j.id)
        or exists (select 1 from line l where l.serial = j.serial and l.place = j.place and l.job = j.id)),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       coalesce(j.parked, 0) = 1, j.stage,
       j.spawn, j.item, coalesce(j.items, 1), coalesce(j.tallied, 0), j.failure, j.output_codec, j.output, j.codec, j.input,
       j.data_codec, j.data,
       case when (select count(*) from page) = $7 then (select id from page order by id desc limit 1) end
from (select 1) as always left join (meant join jobs j on j.id = meant.id) on true
order by j.id
