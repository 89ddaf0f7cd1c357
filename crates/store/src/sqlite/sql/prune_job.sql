-- Deletes a job; its key is free.
delete from windlass_jobs where id = ?1
