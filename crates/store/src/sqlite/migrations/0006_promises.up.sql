-- Promises: what was missing for guarantees to hold everywhere.

-- Signals that a job could not read.
alter table windlass_signals add column aside text;  -- why it was set aside; written by the commit of the attempt that found out, cleared by whoever restores it

-- The number of the last signal that a job was sent: numbers are not given again, though the signal is gone.
alter table windlass_jobs add column heard integer not null default 0;
update windlass_jobs set heard = coalesce((select max(s.number) from windlass_signals s where s.job = windlass_jobs.id), 0)
where exists (select 1 from windlass_signals s where s.job = windlass_jobs.id);

-- Which claim wrote: the number that goes with `worker` and `rev_epoch`. Written by commits.
alter table windlass_jobs add column rev_claim integer;
