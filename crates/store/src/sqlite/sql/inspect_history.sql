-- A job's failed attempts.
select epoch, worker, started_at, ended_at, failure from windlass_attempts where job = ?1 order by epoch
