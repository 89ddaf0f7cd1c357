-- Promises: what was missing for guarantees to hold everywhere.

-- Which claim wrote: the number that goes with `worker` and `rev_epoch`. Written by commits.
alter table jobs add column rev_claim int8;
