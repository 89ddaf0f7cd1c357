-- Forgets the inbox of a job.
delete from windlass_signals where job = ?1
