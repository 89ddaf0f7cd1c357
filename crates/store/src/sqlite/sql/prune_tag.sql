-- Forgets one tag of a job.
delete from tags where tag = ?1 and job = ?2
