-- Inspect, as far as jobs go, and Execution::job_ends: reads only, on a connection of its own. views.sql reads what limits jobs,
-- children.sql children and branches.

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

-- fragment: matches(state)
-- Whether a job matches a filter: parameters 2 to 13. `is_ready`, `is_scheduled` and `is_parked` are columns of the statement.
j.id < coalesce(?2, x'ffffffffffffffffffffffffffffffffff')
  and {{state}}
  and (?4 is null or is_ready = ?4)
  and (?5 is null or is_scheduled = ?5)
  and (?6 is null or j.lane in (select l.id from windlass_lanes l join windlass_kinds k on k.id = l.kind where k.name = ?6))
  and (?7 is null or j.lane in (select l.id from windlass_lanes l join windlass_queues q on q.id = l.queue where q.name = ?7))
  and (?8 is null or exists (select 1 from windlass_tags t where t.tag = ?8 and t.job = j.id))
  and (?9 is null or j.key = ?9)
  and (?10 is null or j.stage = ?10)
  and (?11 is null or j.lane in (select l.id from windlass_lanes l where l.version = ?11))
  and (?12 is null or is_parked = ?12)
  and (not ?13 or j.parent is null)

-- fragment: list(state)
-- Lists jobs that match a filter, newest first. ?1 is the span by which a job's priority moves its rank.
select {{common.summary(?1)}}
from windlass_jobs j
where {{matches({{state}})}}
order by j.id desc
limit ?14

-- fragment: count(state)
-- Counts jobs that match a filter by what decides their state: the column `state`, and where a live job is.
select j.state, case when j.state = 0 then coalesce(j.hold, 0) = 2 or {{common.in_ready(?1)}} or {{common.in_serial_waiting}} else 0 end as is_ready,
       case when j.state = 0 then {{common.in_timers}} else 0 end as is_scheduled, j.parked is not null as is_parked, count(*)
from windlass_jobs j
where {{matches({{state}})}}
group by 1, 2, 3, 4

-- fragment: any_state
-- In any state, or in state ?3.
(?3 is null or j.state = ?3)

-- fragment: of_key
-- With the key ?9, one of each kind at most, in any state, or in state ?3. Walks jobs_key for each kind.
{{any_state}} and j.key = ?9 and j.kind in (select k.id from windlass_kinds k)

-- fragment: unsuccessful
-- Failed or cancelled (?3). Walks jobs_unsuccessful.
j.unsuccessful_state = ?3

-- name: jobs
-- Lists jobs in any state, or in state ?3. Walks the primary key backwards.
{{list({{any_state}})}}

-- name: jobs_by_key
-- Lists jobs with the key ?9. Walks jobs_key for each kind.
{{list({{of_key}})}}

-- name: unsuccessful_jobs
-- Lists failed or cancelled jobs (?3). Walks jobs_unsuccessful backwards.
{{list({{unsuccessful}})}}

-- name: count_jobs
-- Counts jobs in any state, or in state ?3. Reads all jobs.
{{count({{any_state}})}}

-- name: count_jobs_by_key
-- Counts jobs with the key ?9. Walks jobs_key for each kind.
{{count({{of_key}})}}

-- name: count_unsuccessful_jobs
-- Counts failed or cancelled jobs (?3). Walks jobs_unsuccessful.
{{count({{unsuccessful}})}}

-- name: job_ends
-- Reads how a job ended, if it did. Walks the primary key.
select j.state, j.reason, j.failure, j.output_codec, {{common.output}}
from windlass_jobs j where j.id = ?1

-- name: history
-- Lists the failed attempts of a job. Walks the primary key.
select epoch, worker, started_at, ended_at, failure from windlass_attempts where job = ?1 order by epoch

-- name: wait
-- Reads what a parked job waits for. Walks the primary key.
select wait, wait_until, pending_children from windlass_jobs where id = ?1

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
