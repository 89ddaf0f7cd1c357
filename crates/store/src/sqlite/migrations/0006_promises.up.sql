-- Promises: what was missing for guarantees to hold everywhere.

-- Which claim wrote: the number that goes with `worker` and `rev_epoch`. Written by commits.
alter table windlass_jobs add column rev_claim integer;
