-- Execution::commit, as far as few changes write to journals and contexts: what is sent before the changes themselves, after their jobs are
-- locked. Each statement checks by itself whether the change will be written. (Entries are added by the statements of commit.sql and
-- waits.park.)
--
-- $1 to $5 of all are the job, epoch, revision, worker and claim of each change.

-- fragment: will_be_written
-- Whether a change will be written. Walks the primary keys of claims and jobs.
{{commit.claim_is_recorded}} and exists (select from jobs j where j.id = c.job and {{commit.same_revision}})

-- fragment: to_be_written
-- Joins claims and jobs to changes that will be written.
join claims k on k.worker = c.worker and k.number = c.claim
join jobs j on j.id = c.job and {{commit.same_revision}}

-- name: clear
-- Deletes the journals of workflows that continue as new. Walks the primary key of journal.
delete from journal e using unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[]) as c (job, epoch, rev, worker, claim)
where e.job = c.job and {{will_be_written}}

-- name: forget_entries
-- Deletes entries that later ones have made unnecessary. Walks the primary key of journal.
delete from journal e
using unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::int4[]) as c (job, epoch, rev, worker, claim, seq)
where e.job = c.job and e.seq = c.seq and {{will_be_written}}

-- name: set_context
-- Writes values of contexts; no name occurs twice for one job. Walks the primary key of context.
insert into context (job, name, codec, value)
select c.job, c.name, c.codec, c.value
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::text[], $7::int2[], $8::bytea[])
     as c (job, epoch, rev, worker, claim, name, codec, value)
{{to_be_written}}
on conflict (job, name) do update set codec = excluded.codec, value = excluded.value
