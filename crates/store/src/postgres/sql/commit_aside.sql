-- Sets signals aside that attempts could not read, of jobs whose epoch and rev are their change's and whose claim is known.
-- Walks the primary keys of claims, jobs and signals; the jobs are locked by an earlier statement.
update signals s set aside = e.why
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[], $6::int8[], $7::text[])
     as e (job, epoch, rev, worker, claim, number, why)
join claims k on k.worker = e.worker and k.number = e.claim
join jobs j on j.id = e.job and j.epoch = e.epoch and j.rev = e.rev and j.state = 0
where s.job = e.job and s.number = e.number and s.aside is null
