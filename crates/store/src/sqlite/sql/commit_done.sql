-- Ends a job well, if epoch and rev are those of the change and nothing hangs on the job (or ?10). Whoever
-- commits counts for its branch (?13). Walks the primary key.
update windlass_jobs
set state = 1, rev = rev + 1, rev_epoch = epoch, rev_claim = ?14, worker = ?4, started_at = ?5, finished_at = ?6,
    output_codec = ?7, output = ?8, far = case when ?9 then coalesce(far, 0) | 2 else far end, hold = null,
    undo = coalesce(?11, undo), unwind = coalesce(?12, unwind)
where id = ?1 and epoch = ?2 and rev = ?3 and state = 0
  and (?10 or (hold is null and serial is null and round is null and branched is null and (branch is null or ?13)))
