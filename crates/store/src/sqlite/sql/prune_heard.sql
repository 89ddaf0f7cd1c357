-- Forgets the signals that were delivered of a job.
delete from windlass_heard where job = ?1
