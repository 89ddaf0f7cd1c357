-- Maintenance::prune: deletes ended jobs with all their rows, job by job, and old records of schedules. PostgreSQL deletes a batch by one
-- statement.

-- name: candidates
-- Reads the next ?3 jobs by id, with what decides whether each may be pruned. A job is needed while its parent exists and is not done,
-- because the parent may be retried and read it. Walks the primary key, and reads columns beyond the state only of jobs in state ?1.
select j.id, j.state, case when j.state = ?1 then j.finished_at end, j.kind, j.submitted_at,
       case when j.state = ?1 then coalesce((select p.state <> 1 from windlass_jobs p where p.id = j.parent), 0) else 0 end,
       case when j.state = ?1 then j.settings end, case when j.state = ?1 then j.tags end,
       case when j.state = ?1 then j.external_payloads end, case when j.state = ?1 then j.has_branches end, j.lane
from windlass_jobs j
where j.id > ?2
order by j.id
limit ?3

-- name: unsuccessful_candidates
-- The same for failed or cancelled jobs (?1). Walks jobs_unsuccessful.
select j.id, j.state, j.finished_at, j.kind, j.submitted_at,
       coalesce((select p.state <> 1 from windlass_jobs p where p.id = j.parent), 0), j.settings, j.tags, j.external_payloads,
       j.has_branches, j.lane
from windlass_jobs j
where j.unsuccessful_state = ?1 and j.id > ?2
order by j.id
limit ?3

-- name: kind
-- Reads the number of a kind. Walks the unique index of names.
select id from windlass_kinds where name = ?1

-- name: job
-- Deletes a job; its key is free then. Walks the primary key.
delete from windlass_jobs where id = ?1

-- name: tag
-- Deletes one tag of a job. Walks the primary key.
delete from windlass_tags where tag = ?1 and job = ?2

-- name: lanes_of_period
-- Lists the lanes of the jobs from id ?1 on and below ?2. Walks the primary key.
select j.lane from windlass_jobs j where j.id >= ?1 and j.id < ?2

-- name: period
-- Forgets a period in which a lane has no jobs any more. Walks the primary key.
delete from windlass_lane_periods where lane = ?1 and period = ?2

-- name: payloads
-- Deletes the external payloads of a job. Walks the primary key.
delete from windlass_payloads where job = ?1

-- name: attempts
-- Deletes the failed attempts of a job. Walks the primary key.
delete from windlass_attempts where job = ?1

-- name: signals
-- Deletes the inbox of a job. Walks the primary key.
delete from windlass_signals where job = ?1

-- name: delivered_signals
-- Deletes the record of signals that were delivered to a job. Walks the primary key.
delete from windlass_delivered_signals where job = ?1

-- name: transitions
-- Deletes the transitions of a job. Walks the primary key.
delete from windlass_transitions where job = ?1

-- name: journal
-- Deletes the journal of a job. Walks the primary key.
delete from windlass_journal where job = ?1

-- name: context
-- Deletes the context of a job. Walks the primary key.
delete from windlass_context where job = ?1

-- name: branches
-- Deletes the branches of a job. Walks the primary key.
delete from windlass_branches where job = ?1

-- name: branch_times
-- Deletes the times of the branches of a job. Walks the primary key.
delete from windlass_branch_times where job = ?1

-- name: firings
-- Deletes the firings of all schedules before ?1. Walks the primary key once per schedule.
delete from windlass_schedule_firings where schedule in (select id from windlass_schedules) and tick < ?1

-- name: misses
-- Deletes the missed ticks of all schedules before ?1. Walks the primary key once per schedule.
delete from windlass_schedule_misses where schedule in (select id from windlass_schedules) and at < ?1 and last < ?1
