-- The signals in a job's inbox, oldest first. Walks the primary key.
select number, name, at, codec, payload, aside from signals where job = $1 order by number limit $2
