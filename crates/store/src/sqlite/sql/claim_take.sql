-- Takes the places of one lane up to and including (rank, job), all of which claim_jobs has just read in this
-- transaction. PostgreSQL deletes row by row, those it could lock.
delete from windlass_ready where lane = ?1 and (rank, job) <= (?2, ?3)
