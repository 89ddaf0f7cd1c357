-- Forgets the transitions of a job.
delete from windlass_steps where job = ?1
