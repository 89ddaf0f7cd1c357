-- Forgets the failed attempts of a job.
delete from windlass_attempts where job = ?1
