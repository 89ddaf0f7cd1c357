-- A rate limit and what is in its bucket, by name.
select id, name, rate, per, burst, level, at, lifted from windlass_buckets where name = ?1
