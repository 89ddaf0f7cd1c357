-- Forgets one tag of a job.
delete from windlass_tags where tag = ?1 and job = ?2
