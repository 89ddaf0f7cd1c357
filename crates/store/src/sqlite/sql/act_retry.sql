-- Revives a failed or cancelled job with its counters reset: it is due now.
update windlass_jobs
set state = 0, trouble = null, reason = null, finished_at = null, attempts = 0, deaths = 0, crashes = 0, suspect = 0,
    spent = null, run = 0, epoch = epoch + 1, due_at = ?2, place = case when serial is null then place else ?2 end,
    deadline_at = ?3, unwind = null
where id = ?1
