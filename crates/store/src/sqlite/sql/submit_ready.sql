-- Puts a job into the ready set. PostgreSQL does it within submit.
insert into windlass_ready (lane, rank, job) values (?1, ?2, ?3)
