-- Forgets claims of a worker (null: all), and answers what was in them.
delete from claims where worker = $1 and ($2::int8[] is null or number = any($2)) returning jobs, epochs
