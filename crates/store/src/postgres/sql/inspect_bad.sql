-- The same as inspect_leaves for children that failed or were cancelled, of which there is an index: passes over all others
-- unseen. Walks jobs_bad.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       (coalesce(j.hold, 0) = 2 or exists (select 1 from ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * $1::int8 and r.job = j.id)
        or exists (select 1 from line l where l.serial = j.serial and l.place = j.place and l.job = j.id)),
       exists (select 1 from timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       coalesce(j.parked, 0) = 1, j.stage,
       j.spawn, j.item, coalesce(j.items, 1), coalesce(j.tallied, 0), j.failure, j.output_codec, j.output, j.codec, j.input,
       j.data_codec, j.data,
       null::uuid
from jobs j
where (j.parent, j.branch, j.id) > ($2::uuid, $3::int8, coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'::uuid))
  and (j.parent, j.branch) <= ($2, $3) and j.branch is not null and j.trouble is not null
order by j.parent, j.branch, j.id
limit $5::int8
