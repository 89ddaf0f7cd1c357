-- The job is told of a branch: its watch is over, and it is looked at no longer unless it is cut. Walks the primary key.
update windlass_branches set watch = null, poll_at = case when cut then poll_at end
where job = ?1 and number = ?2
