-- Ends a job badly or by its own wish, if epoch and rev are those of the change and nothing hangs on the job (or ?11).
-- Whoever commits counts for its branch (?14). Walks the primary key.
update windlass_jobs
set state = ?7, trouble = ?7, rev = rev + 1, rev_epoch = epoch, rev_claim = ?15, worker = ?4, started_at = ?5, finished_at = ?6,
    reason = ?8, failure = ?9, attempts = attempts + ?10, hold = null,
    undo = coalesce(?12, undo), unwind = coalesce(?13, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
  and (?11 or (hold is null and serial is null and round is null and branched is null and (branch is null or ?14)))
