-- Ends a job that was put in only to say why it cannot run.
update windlass_jobs set state = ?2, trouble = ?2, reason = ?3, failure = ?4, finished_at = ?5 where id = ?1
