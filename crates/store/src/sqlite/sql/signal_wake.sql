-- A parked job is no longer: it is due now, or when it was.
update windlass_jobs set parked = null, due_at = ?2 where id = ?1
