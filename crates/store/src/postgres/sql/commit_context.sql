-- Writes values of contexts, of jobs whose epoch and rev are their change's and whose claim is known: sent before the changes themselves, and
-- after the jobs are locked. No name stands twice for one job. Walks the primary keys of jobs and context.
insert into context (job, name, codec, value)
select c.job, c.name, c.codec, c.value
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::text[], $7::int2[], $8::bytea[])
     as c (job, epoch, rev, worker, claim, name, codec, value)
join claims k on k.worker = c.worker and k.number = c.claim
join jobs j on j.id = c.job and j.epoch = c.epoch and j.rev = c.rev and j.state = 0
on conflict (job, name) do update set codec = excluded.codec, value = excluded.value
