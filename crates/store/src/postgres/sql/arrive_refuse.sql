-- Keeps a job that could not be put in as one that has ended, so that its submitter learns why.
insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, state, trouble, reason, failure,
                  finished_at)
values ($1, $2, $2, $3, $4, 0, $5, $6, $7, $8::int2, $8, $9, $10, $2)
on conflict do nothing
