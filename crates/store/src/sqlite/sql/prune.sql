-- name: attempts
-- Forgets the failed attempts of a job.
delete from windlass_attempts where job = ?1

-- name: branches
-- Forgets the branches of a job.
delete from windlass_branches where job = ?1

-- name: context
-- Forgets the context of a job.
delete from windlass_context where job = ?1

-- name: firings
-- Forgets what schedules fired before a moment. Walks the primary key once per schedule.
delete from windlass_schedule_firings where schedule in (select id from windlass_schedules) and tick < ?1

-- name: delivered_signals
-- Forgets the signals that were delivered of a job.
delete from windlass_delivered_signals where job = ?1

-- name: job
-- Deletes a job; its key is free.
delete from windlass_jobs where id = ?1

-- name: candidates
-- The next jobs in the order of ids, a bounded batch. Walks the primary key, and reads whole rows only of those in the
-- state that is meant. A job is needed while its parent is there and not done: that one may be retried and read it.
select j.id, j.state, case when j.state = ?1 then j.finished_at end, j.kind, j.submitted_at,
       case when j.state = ?1 then coalesce((select p.state <> 1 from windlass_jobs p where p.id = j.parent), 0) else 0 end,
       case when j.state = ?1 then j.settings end, case when j.state = ?1 then j.tags end,
       case when j.state = ?1 then j.external_payloads end, case when j.state = ?1 then j.has_branches end
from windlass_jobs j
where j.id > ?2
order by j.id
limit ?3

-- name: journal
-- Forgets the journal of a job.
delete from windlass_journal where job = ?1

-- name: kind
-- The number of a kind.
select id from windlass_kinds where name = ?1

-- name: misses
-- Forgets what schedules missed before a moment.
delete from windlass_schedule_misses where schedule in (select id from windlass_schedules) and at < ?1 and last < ?1

-- name: payloads
-- Deletes the payloads of a job that are not in its row.
delete from windlass_payloads where job = ?1

-- name: signals
-- Forgets the inbox of a job.
delete from windlass_signals where job = ?1

-- name: transitions
-- Forgets the transitions of a job.
delete from windlass_transitions where job = ?1

-- name: tag
-- Forgets one tag of a job.
delete from windlass_tags where tag = ?1 and job = ?2

-- name: unsuccessful_candidates
-- The next failed or cancelled jobs in the order of ids, a bounded batch. Walks jobs_unsuccessful. A job is
-- needed while its parent is there and not done: that one may be retried and read it.
select j.id, j.state, j.finished_at, j.kind, j.submitted_at,
       coalesce((select p.state <> 1 from windlass_jobs p where p.id = j.parent), 0), j.settings, j.tags, j.external_payloads,
       j.has_branches
from windlass_jobs j
where j.unsuccessful_state = ?1 and j.id > ?2
order by j.id
limit ?3
