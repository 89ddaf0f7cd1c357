-- Live children of a branch that are in no place but, maybe, a claim, in the order of ids. Walks jobs_parent, and primary keys
-- for each live row of the branch.
select j.id, j.epoch
from windlass_jobs j
where j.parent = ?1 and j.branch = ?2 and j.state = 0 and j.parked is null and coalesce(j.hold, 0) <> 2
  and not exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?3 and r.job = j.id)
  and not exists (select 1 from windlass_line l where l.serial = j.serial and l.place = j.place and l.job = j.id)
  and not exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0)
order by j.id
