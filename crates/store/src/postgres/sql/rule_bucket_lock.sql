-- Locks a rate limit and reads it.
select id, name, rate, per, burst, level, at, lifted from buckets where name = $1 for update
