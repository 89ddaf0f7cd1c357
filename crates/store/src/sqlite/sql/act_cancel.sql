-- Ends a job by request: whoever runs it is fenced.
update windlass_jobs
set state = 3, trouble = 3, epoch = epoch + 1, failure = ?2, finished_at = ?3, hold = null, parked = null
where id = ?1 and state = 0
