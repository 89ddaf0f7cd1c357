-- Failed or cancelled jobs that match, newest first. Walks jobs_trouble backwards.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?1 and r.job = j.id)
       or exists (select 1 from windlass_line l where l.serial = j.serial and l.place = j.place and l.job = j.id) as is_ready,
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0) as is_scheduled,
       j.parked is not null as is_parked, j.stage
from windlass_jobs j
where j.id < coalesce(?2, x'ffffffffffffffffffffffffffffffffff')
  and j.trouble = ?3
  and (?4 is null or is_ready = ?4)
  and (?5 is null or is_scheduled = ?5)
  and (?6 is null or j.lane in (select l.id from windlass_lanes l join windlass_kinds k on k.id = l.kind where k.name = ?6))
  and (?7 is null or j.lane in (select l.id from windlass_lanes l join windlass_queues q on q.id = l.queue where q.name = ?7))
  and (?8 is null or exists (select 1 from windlass_tags t where t.tag = ?8 and t.job = j.id))
  and (?9 is null or j.key = ?9)
  and (?11 is null or is_parked = ?11)
  and (?12 is null or j.stage = ?12)
  and (?13 is null or j.lane in (select l.id from windlass_lanes l where l.version = ?13))
order by j.id desc
limit ?10
