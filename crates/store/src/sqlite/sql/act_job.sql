-- A job as far as its place goes, and all that decides what may be done to it. Walks primary keys.
select j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial, j.place, j.parked,
       case when j.round is not null then j.parent end, j.round = -1, j.branch is not null or j.branched is not null,
       j.state, j.epoch, j.kind, j.submitted_at, j.digest,
       exists (select 1 from windlass_ready r
               where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?2 and r.job = j.id),
       exists (select 1 from windlass_line l where l.serial = j.serial and l.place = j.place and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.what = 0),
       j.settings, j.rev, j.undo is not null and j.unwind is null
from windlass_jobs j where j.id = ?1
