-- Gives a slot of a key to a job.
insert into windlass_holders (serial, job) values (?1, ?2) on conflict do nothing
