-- The job that a signal is for: whether it has ended, what it waits for, the first and the last number of its inbox,
-- and whether the signal was delivered before. Walks primary keys.
select j.state, j.wait, (select min(s.number) from windlass_signals s where s.job = j.id),
       (select max(s.number) from windlass_signals s where s.job = j.id),
       exists (select 1 from windlass_heard h where h.job = j.id and h.name = ?2 and h.dedup = ?3), j.pending,
       j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial, j.place, j.parked,
       case when j.round is not null then j.parent end
from windlass_jobs j where j.id = ?1
