-- name: append
-- Appends a job that is submitted in a transaction of the caller's.
insert into windlass_arrivals (id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings,
                      codec, input, digest, stage)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)

-- name: end_refused
-- Ends a job that was put in only to say why it cannot run.
update windlass_jobs set state = ?2, unsuccessful_state = ?2, reason = ?3, failure = ?4, finished_at = ?5 where id = ?1

-- name: oldest
-- The oldest jobs that wait to be put in, a bounded batch.
select seq, id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings, codec,
       input, digest, stage
from windlass_arrivals order by seq limit ?1

-- name: remove
-- Forgets an arrival: its job was put in.
delete from windlass_arrivals where seq = ?1

-- name: is_waiting
-- Whether a job waits to be put in.
select exists (select 1 from windlass_arrivals where id in (?1, ?2))
