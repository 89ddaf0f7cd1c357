-- Puts a job back for another attempt, if epoch and rev are those of the change: its epoch is raised.
update windlass_jobs
set rev = rev + 1, rev_epoch = epoch, rev_claim = ?11, epoch = epoch + 1, worker = ?4, started_at = ?5, due_at = ?6, spent = ?7,
    failure = coalesce(?8, failure), attempts = attempts + 1, suspect = 0,
    undo = coalesce(?9, undo), unwind = coalesce(?10, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
returning lane, priority, due_at, suspect, deadline_at, hold, serial, place, parked,
          case when round is not null then parent end, round = -1, branch is not null or branched is not null, keeps
