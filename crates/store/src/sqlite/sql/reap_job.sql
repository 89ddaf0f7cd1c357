-- A claimed job whose worker is dead, if it is still claimed under that epoch.
select lane, priority, due_at, suspect, deadline_at, hold, serial, place, parked,
       case when round is not null then parent end, round = -1, branch is not null or branched is not null,
       deaths, crashes, undo is not null and unwind is null
from windlass_jobs where id = ?1 and epoch = ?2 and state = 0
