-- Fails a job whose deadline passed: whoever runs it is fenced.
update windlass_jobs
set state = 2, trouble = 2, epoch = epoch + 1, reason = ?2, failure = ?3, finished_at = ?4, hold = null, parked = null
where id = ?1 and state = 0
