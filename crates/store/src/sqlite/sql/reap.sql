-- name: claims
-- Claims of dead workers, a bounded batch.
select c.worker, c.number, c.solo, c.claimed_at, c.jobs
from windlass_claims c join windlass_workers w on w.id = c.worker
where w.status = 1
order by c.worker, c.number
limit ?1

-- name: retire_dead
-- Dead workers with nothing left to walk are gone.
update windlass_workers as workers set status = 2 where status = 1 and not exists (select 1 from windlass_claims where worker = workers.id)

-- name: lock_jobs
-- A claimed job whose worker is dead, if it is still claimed under that epoch.
select lane, priority, due_at, suspect, deadline_at, hold, serial_key, serial_position, parked,
       case when parent_rev is not null then parent end, parent_rev = -1, branch is not null or has_branches is not null,
       worker_deaths, solo_crashes, has_undo is not null and unwind is null
from windlass_jobs where id = ?1 and epoch = ?2 and state = 0

-- name: lapsed
-- Workers whose lease has run out.
select id from windlass_workers where status = 0 and lease_until <= ?1 order by id

-- name: more
-- Whether there is more to walk.
select exists (select 1 from windlass_workers where status = 1)

-- name: poison
-- Fails a job that killed its workers.
update windlass_jobs
set state = 2, unsuccessful_state = 2, epoch = epoch + 1, worker_deaths = ?2, solo_crashes = ?3, failure = ?4, reason = ?5, finished_at = ?6,
    hold = null
where id = ?1

-- name: return_jobs
-- Returns a job as a suspect: its epoch is raised.
update windlass_jobs set epoch = epoch + 1, worker_deaths = ?2, solo_crashes = ?3, suspect = 1, failure = ?4 where id = ?1

-- name: declare_dead
-- Declares a worker dead.
update windlass_workers set status = 1 where id = ?1 and status = 0
