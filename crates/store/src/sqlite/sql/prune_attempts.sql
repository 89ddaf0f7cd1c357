-- Forgets the failed attempts of a job.
delete from attempts where job = ?1
