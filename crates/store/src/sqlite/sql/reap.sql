-- Maintenance::reap: declares workers dead, and returns the jobs in their claims, job by job. Writes workers, claims and jobs. PostgreSQL
-- takes the claims first, skipping those that another reaper walks, and then locks the jobs by id.

-- name: lapsed
-- Lists workers whose lease has run out. Reads the whole table, which is short.
select id from windlass_workers where status = 0 and lease_until <= ?1 order by id

-- name: declare_dead
-- Declares a worker dead. Walks the primary key.
update windlass_workers set status = 1, lost_at = ?2 where id = ?1 and status = 0

-- name: read_claims
-- Reads claims of dead workers, at most ?1. Walks the primary key of claims.
select c.worker, c.number, c.solo, c.claimed_at, c.jobs
from windlass_claims c join windlass_workers w on w.id = c.worker
where w.status = 1
order by c.worker, c.number
limit ?1

-- name: read_job
-- Reads a job of a dead worker's claim, if it is still claimed under that epoch: its placement, its counters, and whether it must be
-- unwound before it ends. Walks the primary key.
select {{common.placement()}}, worker_deaths, solo_crashes, has_undo is not null and unwind is null
from windlass_jobs where id = ?1 and epoch = ?2 and state = 0

-- name: return_job
-- Returns a job as a suspect, and raises its epoch. Walks the primary key.
update windlass_jobs set epoch = epoch + 1, worker_deaths = ?2, solo_crashes = ?3, suspect = 1, failure = ?4 where id = ?1

-- name: poison
-- Fails a job that killed its workers, and raises its epoch. Walks the primary key.
update windlass_jobs
set state = 2, unsuccessful_state = 2, epoch = epoch + 1, worker_deaths = ?2, solo_crashes = ?3, failure = ?4, reason = ?5, finished_at = ?6,
    error_class = {{common.error_class(?4)}}, hold = null
where id = ?1

-- name: retire_dead
-- Retires dead workers that have no claims left. Reads the workers, which are few.
update windlass_workers as workers set status = 2 where status = 1 and not exists (select 1 from windlass_claims where worker = workers.id)

-- name: has_dead
-- Whether dead workers with claims are left.
select exists (select 1 from windlass_workers where status = 1)
