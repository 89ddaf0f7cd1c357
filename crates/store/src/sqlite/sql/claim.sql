-- name: remove_small
-- Forgets a claim that has no more than ?3 bytes of jobs.
delete from windlass_claims where worker = ?1 and number = ?2 and length(jobs) <= ?3

-- name: first_ready
-- The first places of one lane, by rank. Walks the primary key of ready; touches `limit` entries.
select rank, job, 1 from windlass_ready where lane = ?1 order by rank, job limit ?2

-- name: inbox
-- The signals of a name in an inbox, but those that were set aside, oldest first. Walks the primary key.
select number, name, at, codec, payload from windlass_signals
where job = ?1 and name = ?2 and unreadable is null order by number

-- name: job
-- One job of a repeated claim, if it is still claimed under that epoch. Walks the primary key.
select j.id, j.epoch, j.rev, j.attempts, j.worker_deaths, j.key, j.deadline_at, j.retry_counts, j.settings, j.codec,
       case when j.external_payloads & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 1) else j.input end,
       j.lane, j.due_at, j.stage, j.data_codec,
       case when j.external_payloads & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 4) else j.data end,
       j.wait, j.wait_until, j.pending_children, case when j.parent_rev is not null then j.parent end, j.stage_rev, j.steps_since_wait, j.unwind,
       j.branch, case when j.branch is not null then j.parent end, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0)
from windlass_jobs j
where j.id = ?1 and j.epoch = ?2 and j.state = 0

-- name: jobs
-- The jobs of one lane, by rank, with all that a worker needs; whoever reads them stops in time (a limit that is bound has
-- the statement planned anew each time). Walks the primary key of ready, then of jobs.
select j.id, j.epoch, j.rev, j.attempts, j.worker_deaths, j.key, j.deadline_at, j.retry_counts, j.settings, j.codec,
       case when j.external_payloads & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 1) else j.input end,
       r.rank, j.due_at, j.stage, j.data_codec,
       case when j.external_payloads & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 4) else j.data end,
       j.wait, j.wait_until, j.pending_children, case when j.parent_rev is not null then j.parent end, j.stage_rev, j.steps_since_wait, j.unwind,
       j.branch, case when j.branch is not null then j.parent end, coalesce(j.item_count, 1) - coalesce(j.items_counted, 0)
from windlass_ready r join windlass_jobs j on j.id = r.job
where r.lane = ?1
order by r.rank, r.job

-- name: is_recorded
-- Whether a claim is recorded. Walks the primary key.
select exists (select 1 from windlass_claims where worker = ?1 and number = ?2)

-- name: is_claimed
-- Whether a job is still claimed under this epoch. Walks the primary key.
select 1 from windlass_jobs where id = ?1 and epoch = ?2 and state = 0

-- name: oldest_signal
-- The oldest signal of a name in an inbox that was not set aside. A statement of its own: one with a limit that is bound is planned anew each
-- time. Walks the primary key.
select number, name, at, codec, payload from windlass_signals
where job = ?1 and name = ?2 and unreadable is null order by number limit 1

-- name: peek
-- Whether the worker serves and the number is new, the queue is paused, and the lanes (a JSON array) are empty; and the
-- newest lane. Answers no row for a worker that is not there. Walks the primary keys.
select w.status = 0 and w.lease_until > ?4
       and not exists (select 1 from windlass_claims c where c.worker = w.id and c.number = ?2),
       exists (select 1 from windlass_queues q where q.id = ?5 and q.paused_at is not null),
       not exists (select 1 from json_each(?3) l where exists (select 1 from windlass_ready r where r.lane = l.value)),
       coalesce((select max(id) from windlass_lanes), 0)
from windlass_workers w where w.id = ?1

-- name: record
-- Records a claim: one row for the batch.
insert into windlass_claims (worker, number, solo, claimed_at, jobs) values (?1, ?2, ?3, ?4, ?5)

-- name: repeat
-- What an earlier send of the same claim took.
select jobs from windlass_claims where worker = ?1 and number = ?2

-- name: remove
-- Forgets a claim with nothing left in it.
delete from windlass_claims where worker = ?1 and number = ?2

-- name: suspects
-- Whether suspects wait in a lane (the negative one).
select exists (select 1 from windlass_ready where lane = ?1)

-- name: take
-- Takes the places of one lane up to and including (rank, job), all of which claim.jobs has just read in this
-- transaction. PostgreSQL deletes row by row, those it could lock.
delete from windlass_ready where lane = ?1 and (rank, job) <= (?2, ?3)

-- name: read_worker
-- The life and lease of a worker that claims, the newest lane, and whether the queue is paused. PostgreSQL locks the
-- row for share within claim; here the write transaction is lock enough.
select w.status, w.lease_until, coalesce((select max(id) from windlass_lanes), 0),
       exists (select 1 from windlass_queues q where q.id = ?2 and q.paused_at is not null)
from windlass_workers w where w.id = ?1
