-- Promises: what was missing for guarantees to hold everywhere.

-- Signals that a job could not read.
alter table windlass_signals add column aside text;  -- why it was set aside; written by the commit of the attempt that found out, cleared by whoever restores it

-- Which claim wrote: the number that goes with `worker` and `rev_epoch`. Written by commits.
alter table windlass_jobs add column rev_claim integer;
