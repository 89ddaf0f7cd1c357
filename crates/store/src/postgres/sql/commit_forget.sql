-- Deletes entries of journals that are needed no longer, of jobs whose epoch and rev are their change's: sent before the
-- changes themselves, and after the jobs are locked. Walks the primary keys of jobs and journal.
delete from journal e using unnest($1::uuid[], $2::int4[], $3::int4[], $4::int4[]) as c (job, epoch, rev, seq)
where e.job = c.job and e.seq = c.seq
  and exists (select from jobs j where j.id = c.job and j.epoch = c.epoch and j.rev = c.rev and j.state = 0)
