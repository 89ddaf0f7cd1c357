-- The job that a signal is for: whether it has ended, what it waits for and until when, and the last number of its inbox. Walks the primary key.
select j.state, j.wait, j.heard, j.until, j.pending,
       j.lane, j.priority, j.due_at, j.suspect, j.deadline_at, j.hold, j.serial, j.place, j.parked,
       case when j.round is not null then j.parent end, j.round = -1, j.branch is not null or j.branched is not null
from windlass_jobs j where j.id = ?1
