-- name: clear
-- Deletes the journals of jobs that start anew, those whose epoch and rev are their change's and whose claim is known: sent before the changes
-- themselves, and after the jobs are locked. Walks the primary keys of jobs and journal.
delete from journal e using unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[]) as c (job, epoch, rev, worker, claim)
where e.job = c.job
  and exists (select from claims k where k.worker = c.worker and k.number = c.claim)
  and exists (select from jobs j where j.id = c.job and j.epoch = c.epoch and j.rev = c.rev and j.state = 0)

-- name: set_context
-- Writes values of contexts, of jobs whose epoch and rev are their change's and whose claim is known: sent before the changes themselves, and
-- after the jobs are locked. No name stands twice for one job. Walks the primary keys of jobs and context.
insert into context (job, name, codec, value)
select c.job, c.name, c.codec, c.value
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::text[], $7::int2[], $8::bytea[])
     as c (job, epoch, rev, worker, claim, name, codec, value)
join claims k on k.worker = c.worker and k.number = c.claim
join jobs j on j.id = c.job and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
on conflict (job, name) do update set codec = excluded.codec, value = excluded.value

-- name: forget
-- Deletes entries of journals that are needed no longer, of jobs whose epoch and rev are their change's and whose claim is known: sent before the
-- changes themselves, and after the jobs are locked. Walks the primary keys of jobs and journal.
delete from journal e using unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::int4[]) as c (job, epoch, rev, worker, claim, seq)
where e.job = c.job and e.seq = c.seq
  and exists (select from claims k where k.worker = c.worker and k.number = c.claim)
  and exists (select from jobs j where j.id = c.job and j.epoch = c.epoch and j.rev = c.rev and j.state = 0)
