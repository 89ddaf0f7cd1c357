-- Keeps what was seen of a branch, whether it is cut still, and when it is looked at next. Walks the primary key.
update windlass_branches set poll = ?3, cut = ?4, poll_at = ?5 where job = ?1 and number = ?2
