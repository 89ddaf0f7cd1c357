-- The lanes of jobs.
select id, lane from jobs where id = any($1::uuid[])
