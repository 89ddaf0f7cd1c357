-- Timers that are due, a bounded batch, with their jobs as far as place goes. Walks the primary key.
select t.due_at, t.job, t.what, coalesce(j.state, 1), coalesce(j.lane, 0), coalesce(j.priority, 0),
       coalesce(j.due_at, 0), coalesce(j.suspect, 0), j.deadline_at, j.hold, j.serial, j.place, j.parked,
       case when j.round is not null then j.parent end, j.round = -1, j.branch is not null or j.branched is not null
from windlass_timers t left join windlass_jobs j on j.id = t.job
where t.due_at <= ?1
order by t.due_at, t.job, t.what
limit ?2
