-- The job that was in the way of a submit, by kind and key. Walks jobs_key.
select id, digest from windlass_jobs where kind = ?1 and key = ?2
