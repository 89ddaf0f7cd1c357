-- A machine's transitions, oldest first. Walks the primary key.
select rev, stage, next, how, at, worker from steps where job = $1 and rev > coalesce($2::int4, -1) order by rev limit $3
