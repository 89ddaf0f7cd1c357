-- Why a change was not written: whether it was before (then this claim wrote the rev after it), and whether it is only
-- that something hangs on the job; and whether it is still claimed under this epoch.
select rev = ?3 + 1 and rev_epoch = ?2 and worker = ?4 and rev_claim = ?5, rev = ?3 and epoch = ?2 and state = 0,
       epoch = ?2 and state = 0,
       lane, priority, due_at, suspect, deadline_at, hold, serial, place, parked,
       case when round is not null then parent end, round = -1, branch is not null or branched is not null
from windlass_jobs where id = ?1
