-- Inspect, as far as jobs go, and Execution::job_ends: reads only, on a connection of its own. lists.sql lists jobs,
-- views.sql reads what limits them, children.sql children and branches.

-- name: job
-- Reads one job with all that is known of it. Where it is says the state of a live job. Walks primary keys. ?2 is the span by which
-- a job's priority moves its rank.
select {{common.summary(?2)}},
       j.epoch, j.rev, j.worker_deaths, j.solo_crashes, j.worker, j.started_at, j.deadline_at, j.tags, j.options, j.settings,
       j.retry_counts, j.codec, {{common.input}}, j.output_codec, {{common.output}},
       j.failure, j.parent, j.data_codec, {{common.data}}, j.wait, j.wait_until, j.pending_children, j.unwind
from windlass_jobs j where j.id = ?1

-- name: progress
-- Reads what the attempts of a worker last reported. Walks the primary key. PostgreSQL reads it within job.
select progress from windlass_workers where id = ?1

-- name: job_ends
-- Reads how a job ended, if it did. Walks the primary key.
select j.state, j.reason, j.failure, j.output_codec, {{common.output}}
from windlass_jobs j where j.id = ?1

-- name: output_sizes
-- Reads the bytes of the output of a job. Walks the primary key.
select coalesce(length({{common.output}}), 0) from windlass_jobs j where j.id = ?1

-- name: history
-- Lists the failed attempts of a job. Walks the primary key.
select epoch, worker, started_at, ended_at, failure from windlass_attempts where job = ?1 order by epoch

-- name: wait
-- Reads what a parked job waits for, and since when. Walks the primary key.
select wait, wait_until, pending_children, parked_at from windlass_jobs where id = ?1

-- name: inbox
-- Lists the signals in an inbox, oldest first. Walks the primary key.
select number, name, at, codec, payload, unreadable from windlass_signals where job = ?1 order by number limit ?2

-- name: unreadable_signals
-- Lists the unreadable signals of a job, oldest first, at most ?2. Walks the primary key.
select number, name, at, unreadable from windlass_signals where job = ?1 and unreadable is not null order by number limit ?2

-- name: transitions
-- Lists the transitions of a machine after a revision, oldest first. Walks the primary key.
select rev, stage, next, outcome, at, worker from windlass_transitions where job = ?1 and rev > ?2 order by rev limit ?3

-- name: transition_counts
-- Counts how often each transition was made by the newest ?2 machines of a kind. Walks the primary key of jobs backwards, then that of
-- transitions.
select l.version, s.stage, s.next, s.outcome, count(*)
from (select j.id, j.lane from windlass_jobs j where j.kind = (select k.id from windlass_kinds k where k.name = ?1)
      order by j.id desc limit ?2) newest
join windlass_lanes l on l.id = newest.lane
join windlass_transitions s on s.job = newest.id
group by l.version, s.stage, s.next, s.outcome
order by l.version, s.stage, s.next, s.outcome

-- name: journal
-- Reads the entries of a journal after a position, in order. The caller stops when it has enough: SQLite plans a statement again
-- whenever the parameter of a limit changes. Walks the primary key.
select seq, call_kind, event, name, key, source_line, at, codec, payload from windlass_journal where job = ?1 and seq > ?2 order by seq

-- name: journal_sizes
-- Reads the bytes of the payloads of entries after a position, in order. The caller stops when it has enough. Walks the primary key.
select length(payload) from windlass_journal where job = ?1 and seq > ?2 order by seq

-- name: journal_end
-- Reads the last entries of a journal, the last one first, with the bytes of their payloads, but only the payloads of entries of kind ?3. Walks
-- the primary key backwards.
select seq, call_kind, event, name, key, source_line, at, codec, case when call_kind = ?3 then payload else x'' end, length(payload)
from windlass_journal where job = ?1 order by seq desc limit ?2

-- name: journal_before
-- Counts the entries before a position, at most ?3. Walks the primary key.
select count(*) from (select 1 from windlass_journal where job = ?1 and seq < ?2 limit ?3)

-- name: context
-- Reads the values of a workflow's context, by name. Walks the primary key.
select name, codec, value from windlass_context where job = ?1 order by name

-- name: claims
-- Reads all claims, to find who runs a job: they are few, and packed.
select worker, claimed_at, jobs from windlass_claims

-- name: running_lane
-- Reads the lane of one job of a claim, if it is still claimed under that epoch. Walks the primary key.
select lane from windlass_jobs where id = ?1 and epoch = ?2 and state = 0

-- name: backlog
-- Counts what is ready and scheduled in each lane, reading at most ?1 rows of ready per lane and of timers. Walks their primary keys,
-- then that of jobs. PostgreSQL counts running jobs by the same statement; here the caller unpacks the claims.
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
from (select t.job, t.purpose from windlass_timers t order by t.due_at, t.job, t.purpose limit ?1) first_due
join windlass_jobs j on j.id = first_due.job
where first_due.purpose = 0 and j.state = 0 and j.parked is null
group by j.lane

-- name: bytes
-- Reads the size of the database file in bytes.
select (select page_count from pragma_page_count) * (select page_size from pragma_page_size)
