-- Gives locked jobs another priority.
update jobs set priority = $2::int2 where id = any($1::uuid[])
