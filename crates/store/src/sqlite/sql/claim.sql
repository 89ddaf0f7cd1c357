-- Execution::claim: moves jobs from ready into one row of claims. A claim reads the worker, deletes settled claims, reads the jobs of
-- each lane, deletes their ready rows, and records the batch. PostgreSQL does all that in one statement, and skips rows that another
-- claim has locked; here a claim has the file to itself.

-- name: is_idle
-- Whether the worker may claim and the number is new; whether the queue is paused; whether the lanes ?3 (a JSON array) are empty; and
-- the newest lane. No row if the worker does not exist. Sent without the write lock. Walks primary keys.
select w.status = 0 and w.lease_until > ?4
       and not exists (select 1 from windlass_claims c where c.worker = w.id and c.number = ?2),
       exists (select 1 from windlass_queues q where q.id = ?5 and q.paused_at is not null),
       not exists (select 1 from json_each(?3) l where exists (select 1 from windlass_ready r where r.lane = l.value)),
       coalesce((select max(id) from windlass_lanes), 0)
from windlass_workers w where w.id = ?1

-- name: read_worker
-- Reads the status and lease of a worker, the newest lane, and whether the queue ?2 is paused. Walks primary keys.
select w.status, w.lease_until, coalesce((select max(id) from windlass_lanes), 0),
       exists (select 1 from windlass_queues q where q.id = ?2 and q.paused_at is not null)
from windlass_workers w where w.id = ?1

-- fragment: claimed_job(lane_or_rank)
-- The columns of a job that a worker needs to run it; read by `claimed_row`.
j.id, j.epoch, j.rev, j.attempts, j.worker_deaths, j.key, j.deadline_at, j.retry_counts, j.settings, j.codec, {{common.input}},
{{lane_or_rank}}, j.due_at, j.stage, j.data_codec, {{common.data}},
j.wait, j.wait_until, j.pending_children, case when j.parent_rev is not null then j.parent end, j.stage_rev, j.steps_since_wait,
j.unwind, j.branch, case when j.branch is not null then j.parent end, {{common.items_left}}

-- name: ready_jobs
-- Reads the ready jobs of one lane, by rank, with all that a worker needs. The caller stops when it has enough: SQLite plans a
-- statement again whenever the parameter of a limit changes. Walks the primary key of ready, then of jobs.
select {{claimed_job(r.rank)}}
from windlass_ready r join windlass_jobs j on j.id = r.job
where r.lane = ?1
order by r.rank, r.job

-- name: take_ready
-- Deletes the ready rows of one lane up to and including (rank, job), all of which ready_jobs has just read in this transaction.
-- Walks the primary key.
delete from windlass_ready where lane = ?1 and (rank, job) <= (?2, ?3)

-- name: ready_job
-- Reads the ready job ?2 of one lane, with all that a worker needs; ?3 is the span by which priority moves the rank. Walks the primary
-- keys of jobs and ready.
select {{claimed_job(r.rank)}}
from windlass_jobs j join windlass_ready r on r.lane = j.lane and r.rank = j.due_at + j.priority * ?3 and r.job = j.id
where j.id = ?2 and j.lane = ?1

-- name: record
-- Records a claim: one row for the batch.
insert into windlass_claims (worker, number, solo, claimed_at, jobs) values (?1, ?2, ?3, ?4, ?5)

-- name: first_ready
-- Reads the first ?2 ready rows of one lane, by rank; each costs 1. Walks the primary key of ready.
select rank, job, 1 from windlass_ready where lane = ?1 order by rank, job limit ?2

-- name: has_suspects
-- Whether suspects wait in a lane (the negative one). Walks the primary key of ready.
select exists (select 1 from windlass_ready where lane = ?1)

-- name: inbox
-- Reads the signals of one name in an inbox, oldest first, without unreadable ones. Walks the primary key of signals.
select number, name, at, codec, payload from windlass_signals
where job = ?1 and name = ?2 and unreadable is null order by number

-- name: oldest_signal
-- Reads the first of them. A statement of its own, because a limit as a parameter would be planned again and again.
select number, name, at, codec, payload from windlass_signals
where job = ?1 and name = ?2 and unreadable is null order by number limit 1

-- name: read_claim
-- Reads the jobs of a recorded claim. Walks the primary key.
select jobs from windlass_claims where worker = ?1 and number = ?2

-- name: claimed_again
-- Reads one job of a repeated claim, if it is still claimed under that epoch. Walks the primary key of jobs.
select {{claimed_job(j.lane)}}
from windlass_jobs j
where j.id = ?1 and j.epoch = ?2 and j.state = 0

-- name: is_recorded
-- Whether a claim is recorded. Walks the primary key.
select exists (select 1 from windlass_claims where worker = ?1 and number = ?2)

-- name: is_claimed
-- Whether a job is still claimed under this epoch. Walks the primary key of jobs.
select 1 from windlass_jobs where id = ?1 and epoch = ?2 and state = 0

-- name: remove_settled
-- Deletes a claim of at most ?3 bytes of jobs: as many have left it. Walks the primary key.
delete from windlass_claims where worker = ?1 and number = ?2 and length(jobs) <= ?3

-- name: remove
-- Deletes a claim. Walks the primary key.
delete from windlass_claims where worker = ?1 and number = ?2
