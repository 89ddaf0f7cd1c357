-- Forgets the branches of a job.
delete from windlass_branches where job = ?1
