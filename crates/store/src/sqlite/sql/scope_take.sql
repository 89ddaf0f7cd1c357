-- Gives a unique name to a job.
insert into windlass_scopes (kind, key, job) values (?1, ?2, ?3)
on conflict (kind, key) do update set job = ?3
