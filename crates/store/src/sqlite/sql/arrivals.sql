-- Maintenance::fire_timers, as far as it admits jobs that were submitted in transactions of others; and those submits. Moves rows of
-- arrivals into jobs, one by one. PostgreSQL takes a batch and skips rows that another process is taking.

-- name: append
-- Adds a job in the caller's own transaction; a worker admits it after that transaction commits.
insert into windlass_arrivals (id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings,
                      codec, input, digest, stage)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)

-- name: read_oldest
-- Reads the oldest arrivals, at most ?1. Walks the primary key.
select seq, id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings, codec,
       input, digest, stage
from windlass_arrivals order by seq limit ?1

-- name: remove
-- Deletes an arrival: its job was admitted. Walks the primary key.
delete from windlass_arrivals where seq = ?1

-- name: end_refused
-- Ends a job that was inserted only to say why it cannot run. Walks the primary key of jobs.
update windlass_jobs
set state = ?2, unsuccessful_state = ?2, reason = ?3, failure = ?4, finished_at = ?5, error_class = {{common.error_class(?4)}}
where id = ?1

-- name: is_waiting
-- Whether a job waits to be admitted, by its id as bytes or as text. Reads the whole table, which is short.
select exists (select 1 from windlass_arrivals where id in (?1, ?2))
