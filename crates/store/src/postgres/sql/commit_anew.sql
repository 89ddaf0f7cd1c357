-- Deletes the journals of jobs that start anew, those whose epoch and rev are their change's and whose claim is known: sent before the changes
-- themselves, and after the jobs are locked. Walks the primary keys of jobs and journal.
delete from journal e using unnest($1::uuid[], $2::int4[], $3::int4[], $4::int8[], $5::int8[]) as c (job, epoch, rev, worker, claim)
where e.job = c.job
  and exists (select from claims k where k.worker = c.worker and k.number = c.claim)
  and exists (select from jobs j where j.id = c.job and j.epoch = c.epoch and j.rev = c.rev and j.state = 0)
