-- A rate limit and what is in its bucket, by number.
select id, name, rate, per, burst, level, at, lifted from windlass_buckets where id = ?1
