-- Whether a job has not ended.
select 1 from windlass_jobs where id = ?1 and state = 0
