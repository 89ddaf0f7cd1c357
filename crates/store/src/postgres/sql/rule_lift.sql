-- Lets the jobs of a rate limit pass.
update buckets set lifted = true where name = $1 and not lifted
