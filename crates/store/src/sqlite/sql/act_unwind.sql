-- Has a job unwound that was to be ended from outside: it is due now, its counters start anew, and nothing keeps it. Whoever
-- runs it is fenced.
update windlass_jobs
set unwind = ?2, due_at = ?3, failure = coalesce(?4, failure), epoch = epoch + 1, attempts = 0, spent = null, deaths = 0,
    crashes = 0, suspect = 0, hold = null, parked = null, wait = null, until = null
where id = ?1
