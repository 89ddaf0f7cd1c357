-- Rate limits by name; all of them for null.
select id, name, rate, per, burst, level, at, lifted from buckets where $1::text[] is null or name = any($1) order by name collate "C"
