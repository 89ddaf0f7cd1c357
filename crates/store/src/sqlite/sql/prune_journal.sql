-- Forgets the journal of a job.
delete from windlass_journal where job = ?1
