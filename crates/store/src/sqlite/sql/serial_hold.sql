-- Gives a slot of a key to a job.
insert into holders (serial, job) values (?1, ?2) on conflict do nothing
