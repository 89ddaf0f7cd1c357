-- name: peek
-- Jobs that wait to be put in, oldest first, a bounded batch.
select seq, id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings, codec,
       input, digest, stage
from arrivals order by seq limit $1

-- name: insert_refused
-- Keeps a job that could not be put in as one that has ended, so that its submitter learns why.
insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, state, unsuccessful_state, reason, failure,
                  finished_at)
values ($1, $2, $2, $3, $4, 0, $5, $6, $7, $8::int2, $8, $9, $10, $2)
on conflict do nothing

-- name: take
-- Takes jobs that wait to be put in; passes over those that another process is taking. Answers which were taken.
delete from arrivals where ctid = any (array(
    select a.ctid from arrivals a where a.seq = any($1::int8[]) order by a.seq for update skip locked
))
returning seq

-- name: waiting
-- Which jobs wait to be put in.
select id from arrivals where id = any($1::uuid[])

-- name: append
-- Appends a job in the caller's own transaction (the table is named with its schema there); the next worker that looks
-- puts it in.
insert into arrivals
    (id, kind, version, queue, key, priority, at, delay, deadline_at, parent, tags, options, settings, codec, input, digest,
     stage)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
