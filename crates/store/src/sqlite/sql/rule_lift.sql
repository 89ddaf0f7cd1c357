-- Lifts a rate limit: its jobs pass.
update windlass_buckets set lifted = 1 where id = ?1
