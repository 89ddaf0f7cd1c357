-- Forgets the journal of a job, which starts anew. Walks the primary key.
delete from windlass_journal where job = ?1
