-- What a parked job waits for. Walks the primary key.
select wait, until, pending from windlass_jobs where id = ?1
