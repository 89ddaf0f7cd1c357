-- Lifts a rate limit: its jobs pass.
update buckets set lifted = 1 where id = ?1
