-- Forgets the context of a job.
delete from windlass_context where job = ?1
