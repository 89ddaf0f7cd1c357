-- name: job_ends
-- How a job ended, if it did.
select j.state, j.reason, j.failure, j.output_codec,
       case when j.external_payloads & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 2) else j.output end
from windlass_jobs j where j.id = ?1

-- name: unreadable_signals
-- The signals of a job that were set aside, oldest first, a bounded number. Walks the primary key.
select number, name, at, unreadable from windlass_signals where job = ?1 and unreadable is not null order by number limit ?2

-- name: backlog
-- What waits in each lane, looking at ?1 rows at most of each of ready (per lane) and timers. Walks their primary keys,
-- then that of jobs. In PostgreSQL the same statement counts what runs; here the claims are taken apart outside of SQL.
select l.id, 'ready',
       (select count(*) from (select 1 from windlass_ready r where r.lane = l.id limit ?1))
       + (select count(*) from (select 1 from windlass_ready r where r.lane = -l.id limit ?1)),
       (select min(due_at) from (
            select * from (select j.due_at from windlass_ready r join windlass_jobs j on j.id = r.job where r.lane = l.id
                           order by r.rank, r.job limit 1)
            union all
            select * from (select j.due_at from windlass_ready r join windlass_jobs j on j.id = r.job where r.lane = -l.id
                           order by r.rank, r.job limit 1)))
from windlass_lanes l
union all
select j.lane, 'scheduled', count(*), null
from (select t.job, t.purpose from windlass_timers t order by t.due_at, t.job, t.purpose limit ?1) s
join windlass_jobs j on j.id = s.job
where s.purpose = 0 and j.state = 0 and j.parked is null
group by j.lane

-- name: bytes
-- Bytes of the database file.
select (select page_count from pragma_page_count) * (select page_size from pragma_page_size)

-- name: state_counts
-- Counts per lane and state, each capped. Live jobs are counted by where they are; those in line and aside are ready.
select lane, state, min(count(*), ?1) from (
    select lane, 'live' as state from windlass_jobs where state = 0
    union all select lane, 'done' from windlass_jobs where state = 1
    union all select lane, 'failed' from windlass_jobs where state = 2
    union all select lane, 'cancelled' from windlass_jobs where state = 3
    union all select abs(lane), 'ready' from windlass_ready
    union all select j.lane, 'ready' from windlass_serial_waiting l join windlass_jobs j on j.id = l.job
    union all select lane, 'ready' from windlass_jobs where state = 0 and hold = 2
    union all select lane, 'waiting' from windlass_jobs where state = 0 and parked is not null
    union all select j.lane, 'scheduled' from windlass_timers t join windlass_jobs j on j.id = t.job
              where t.purpose = 0 and j.parked is null
) group by lane, state

-- name: claims
-- All claims, to find whose a running job is: they are few.
select worker, claimed_at, jobs from windlass_claims

-- name: context
-- The values of a context, by name. Walks the primary key.
select name, codec, value from windlass_context where job = ?1 order by name

-- name: history
-- A job's failed attempts.
select epoch, worker, started_at, ended_at, failure from windlass_attempts where job = ?1 order by epoch

-- name: inbox
-- The signals in an inbox, oldest first. Walks the primary key.
select number, name, at, codec, payload, unreadable from windlass_signals where job = ?1 order by number limit ?2

-- name: job
-- One job with all that is known of it. The place it is in says the state of a live one.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?2 and r.job = j.id)
       or exists (select 1 from windlass_serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id),
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0),
       j.parked is not null, j.stage,
       j.epoch, j.rev, j.worker_deaths, j.solo_crashes, j.worker, j.started_at, j.deadline_at, j.tags, j.options, j.settings,
       j.retry_counts, j.codec,
       case when j.external_payloads & 1 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 1) else j.input end,
       j.output_codec,
       case when j.external_payloads & 2 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 2) else j.output end,
       j.failure, j.parent, j.data_codec,
       case when j.external_payloads & 4 then (select p.bytes from windlass_payloads p where p.job = j.id and p.part = 4) else j.data end,
       j.wait, j.wait_until, j.pending_children, j.unwind
from windlass_jobs j where j.id = ?1

-- name: jobs
-- Jobs that match, newest first. Walks the primary key backwards; a live state is told by where the job is.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?1 and r.job = j.id)
       or exists (select 1 from windlass_serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id) as is_ready,
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0) as is_scheduled,
       j.parked is not null as is_parked, j.stage
from windlass_jobs j
where j.id < coalesce(?2, x'ffffffffffffffffffffffffffffffffff')
  and (?3 is null or j.state = ?3)
  and (?4 is null or is_ready = ?4)
  and (?5 is null or is_scheduled = ?5)
  and (?6 is null or j.lane in (select l.id from windlass_lanes l join windlass_kinds k on k.id = l.kind where k.name = ?6))
  and (?7 is null or j.lane in (select l.id from windlass_lanes l join windlass_queues q on q.id = l.queue where q.name = ?7))
  and (?8 is null or exists (select 1 from windlass_tags t where t.tag = ?8 and t.job = j.id))
  and (?9 is null or j.key = ?9)
  and (?11 is null or is_parked = ?11)
  and (?12 is null or j.stage = ?12)
  and (?13 is null or j.lane in (select l.id from windlass_lanes l where l.version = ?13))
order by j.id desc
limit ?10

-- name: journal
-- The entries of a journal after a place, in order; whoever reads them stops in time (a limit that is bound has the
-- statement planned anew each time). Walks the primary key.
select seq, op, mark, name, key, source_line, at, codec, payload from windlass_journal where job = ?1 and seq > ?2 order by seq

-- name: transition_counts
-- How often each transition was made by the newest machines of a kind. Walks the primary key of jobs backwards, then
-- that of steps.
select l.version, s.stage, s.next, s.outcome, count(*)
from (select j.id, j.lane from windlass_jobs j where j.kind = (select k.id from windlass_kinds k where k.name = ?1)
      order by j.id desc limit ?2) newest
join windlass_lanes l on l.id = newest.lane
join windlass_transitions s on s.job = newest.id
group by l.version, s.stage, s.next, s.outcome
order by l.version, s.stage, s.next, s.outcome

-- name: running
-- The lane of one job of a claim, if it is still claimed under that epoch. Walks the primary key.
select lane from windlass_jobs where id = ?1 and epoch = ?2 and state = 0

-- name: transitions
-- The transitions of a machine after a revision, oldest first. Walks the primary key.
select rev, stage, next, outcome, at, worker from windlass_transitions where job = ?1 and rev > ?2 order by rev limit ?3

-- name: unsuccessful_jobs
-- Failed or cancelled jobs that match, newest first. Walks jobs_unsuccessful backwards.
select j.id, j.lane, j.priority, j.state, j.reason, j.attempts, j.submitted_at, j.due_at, j.finished_at, j.key,
       coalesce(j.hold, 0) = 2
       or exists (select 1 from windlass_ready r
                  where r.lane in (j.lane, -j.lane) and r.rank = j.due_at + j.priority * ?1 and r.job = j.id)
       or exists (select 1 from windlass_serial_waiting l where l.serial_key = j.serial_key and l.serial_position = j.serial_position and l.job = j.id) as is_ready,
       exists (select 1 from windlass_timers t where t.due_at = j.due_at and t.job = j.id and t.purpose = 0) as is_scheduled,
       j.parked is not null as is_parked, j.stage
from windlass_jobs j
where j.id < coalesce(?2, x'ffffffffffffffffffffffffffffffffff')
  and j.unsuccessful_state = ?3
  and (?4 is null or is_ready = ?4)
  and (?5 is null or is_scheduled = ?5)
  and (?6 is null or j.lane in (select l.id from windlass_lanes l join windlass_kinds k on k.id = l.kind where k.name = ?6))
  and (?7 is null or j.lane in (select l.id from windlass_lanes l join windlass_queues q on q.id = l.queue where q.name = ?7))
  and (?8 is null or exists (select 1 from windlass_tags t where t.tag = ?8 and t.job = j.id))
  and (?9 is null or j.key = ?9)
  and (?11 is null or is_parked = ?11)
  and (?12 is null or j.stage = ?12)
  and (?13 is null or j.lane in (select l.id from windlass_lanes l where l.version = ?13))
order by j.id desc
limit ?10

-- name: wait
-- What a parked job waits for. Walks the primary key.
select wait, wait_until, pending_children from windlass_jobs where id = ?1
