-- Frees the slot that a job has. Walks the primary key.
delete from windlass_holders where serial = ?1 and job = ?2
