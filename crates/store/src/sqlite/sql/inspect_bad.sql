-- Children of a branch that failed or were cancelled (?6), in the order of their ids. Walks jobs_trouble from the first child of
-- the branch on: what goes wrong is little, and the rest of a large branch is not looked at.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?1 and r.job = j.id)
       or exists (select 1 from windlass_line l where l.serial = j.serial and l.place = j.place and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       j.parked is not null, j.stage,
       j.branch, j.spawn, j.item, coalesce(j.items, 1), coalesce(j.tallied, 0), j.failure, j.output_codec,
       case when j.far & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 2) else j.output end,
       j.codec,
       case when j.far & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 1) else j.input end,
       j.data_codec,
       case when j.far & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.what = 4) else j.data end
from windlass_jobs j
where j.trouble = ?6 and j.id > ?4 and +j.parent = ?2 and +j.branch = ?3
  and j.id >= (select min(c.id) from windlass_jobs c where c.parent = ?2 and c.branch = ?3 and c.id > ?4)
order by j.id
limit ?5
