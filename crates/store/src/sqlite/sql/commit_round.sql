-- A job is about to go on to a stage (?2 is the revision that leads to it) whose children are put in first: what it waited
-- for before is waited for no longer. Walks the primary key.
update windlass_jobs set since = ?2, pending = 0 where id = ?1
