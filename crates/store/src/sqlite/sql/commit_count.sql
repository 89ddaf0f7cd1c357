-- Writes how the children of a branch have ended. Walks the primary key.
update windlass_branches set started = ?3, done = ?4, failed = ?5, cancelled = ?6 where job = ?1 and number = ?2
