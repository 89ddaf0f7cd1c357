-- Whether a job is still claimed under this epoch. Walks the primary key.
select 1 from windlass_jobs where id = ?1 and epoch = ?2 and state = 0
