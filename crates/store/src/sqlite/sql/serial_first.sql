-- The first in line of a key, as many as it has free slots. Walks the primary keys of holders and line.
select l.job, j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial, l.place, j.parked,
       case when j.round is not null then j.parent end, j.round = -1, j.branch is not null or j.branched is not null
from windlass_line l join windlass_jobs j on j.id = l.job
where l.serial = ?1 and j.state = 0
order by l.place, l.job
limit (select max(s.slots - (select count(*) from windlass_holders h where h.serial = s.id), 0) from windlass_serials s where s.id = ?1)
