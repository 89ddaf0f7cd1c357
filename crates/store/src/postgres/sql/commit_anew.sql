-- Deletes the journals of jobs that start anew, those whose epoch and rev are their change's: sent before the changes
-- themselves, and after the jobs are locked. Walks the primary keys of jobs and journal.
delete from journal e using unnest($1::uuid[], $2::int4[], $3::int4[]) as c (job, epoch, rev)
where e.job = c.job
  and exists (select from jobs j where j.id = c.job and j.epoch = c.epoch and j.rev = c.rev and j.state = 0)
