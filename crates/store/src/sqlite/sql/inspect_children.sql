-- Jobs that one job submitted, in one of its branches (?5) or in none, oldest first. Walks jobs_parent.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?1 and r.job = j.id)
       or exists (select 1 from windlass_line l where l.serial = j.serial and l.place = j.place and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       j.parked is not null, j.stage
from windlass_jobs j
where j.parent = ?2 and j.branch is ?5 and j.id > ?3
order by j.id
limit ?4
