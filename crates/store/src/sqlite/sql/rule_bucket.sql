-- A rate limit and what is in its bucket, by name.
select id, name, rate, per, burst, level, at, lifted from buckets where name = ?1
