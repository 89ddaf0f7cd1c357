-- A job has ended: it wants to be told of no branch any more. Walks the primary key.
update windlass_branches set watch = null, poll_at = case when cut then poll_at end where job = ?1
