-- Keeps a failed attempt.
insert into windlass_attempts (job, epoch, worker, started_at, ended_at, failure) values (?1, ?2, ?3, ?4, ?5, ?6)
