-- Fails a job that killed its workers.
update windlass_jobs
set state = 2, trouble = 2, epoch = epoch + 1, deaths = ?2, crashes = ?3, failure = ?4, reason = ?5, finished_at = ?6,
    hold = null
where id = ?1
