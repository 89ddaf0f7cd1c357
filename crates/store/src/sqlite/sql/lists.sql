-- Inspect::jobs and Inspect::count_jobs. A list walks one index and compares the jobs that it finds there with the filter: most statements here
-- read ids from one index, newest first, and `matching` compares one of them. The caller stops a read when it has enough: SQLite plans a
-- statement again whenever the parameter of a limit changes. Reads only, on a connection of its own. PostgreSQL reads and compares many
-- ids at a time.
--
-- Parameters of all that read ids: ?1 the id below which and ?2 the one from which on they are, or null; ?3 what is looked up.

-- fragment: page(id)
-- The order and the limits of a read of ids.
{{id}} < coalesce(?1, x'ffffffffffffffffffffffffffffffffff') and {{id}} >= coalesce(?2, x'') order by {{id}} desc

-- name: all
-- Reads the ids of all jobs. Walks the primary key backwards.
select j.id from windlass_jobs j where {{page(j.id)}}

-- name: lanes
-- Lists the lanes of a kind ?1, a queue ?2 and a version ?3; null for all. Reads the whole table, which is short.
select l.id from windlass_lanes l join windlass_kinds k on k.id = l.kind join windlass_queues q on q.id = l.queue
where (?1 is null or k.name = ?1) and (?2 is null or q.name = ?2) and (?3 is null or l.version = ?3)

-- name: periods
-- Reads in which periods from ?1 to ?2 jobs of lane ?3 were submitted, newest first. Walks the primary key of lane_periods backwards.
select p.period from windlass_lane_periods p where p.lane = ?3 and p.period >= ?1 and p.period <= ?2 order by p.period desc

-- name: tag
-- Reads the ids of jobs with a tag. Walks the primary key of tags backwards.
select t.job from windlass_tags t where t.tag = ?3 and {{page(t.job)}}

-- name: unsuccessful
-- Reads the ids of failed or cancelled jobs (?3). Walks jobs_unsuccessful backwards.
select j.id from windlass_jobs j where j.unsuccessful_state = ?3 and {{page(j.id)}}

-- name: error_class
-- Reads the ids of unsuccessful jobs whose error has a class. Walks jobs_error_class backwards.
select j.id from windlass_jobs j where j.error_class = ?3 and {{page(j.id)}}

-- name: unsuccessful_stage
-- Reads the ids of unsuccessful jobs in a stage. Walks jobs_unsuccessful_stage backwards.
select j.id from windlass_jobs j where j.unsuccessful_state is not null and j.stage = ?3 and {{page(j.id)}}

-- name: parked_stage
-- Reads the ids of parked jobs in a stage. Walks jobs_parked backwards.
select j.id from windlass_jobs j where j.parked is not null and j.stage = ?3 and {{page(j.id)}}

-- name: key
-- Reads the ids of jobs with a key, one of each kind at most. Walks jobs_key for each kind.
select j.id from windlass_jobs j where j.kind in (select k.id from windlass_kinds k) and j.key = ?3 and {{page(j.id)}}

-- name: key_prefix
-- Reads the ids of jobs whose keys are from ?3 on and below ?4. Walks jobs_key for each kind, and sorts.
select j.id from windlass_jobs j
where j.kind in (select k.id from windlass_kinds k) and j.key >= ?3 and j.key < ?4 and {{page(+j.id)}}

-- name: ready
-- Reads the ids of jobs that are ready, and of others that are held. Reads all of ready, serial_waiting, paused_jobs and cancel_requests, and
-- sorts.
select p.job
from (
    select r.job from windlass_ready r union all select w.job from windlass_serial_waiting w
    union all select h.job from windlass_paused_jobs h union all select c.job from windlass_cancel_requests c
) p
where {{page(p.job)}}

-- name: timers
-- Reads the ids of jobs that wait for a time. Reads all timers, and sorts.
select t.job from windlass_timers t where t.purpose = 0 and {{page(t.job)}}

-- name: parked
-- Reads the ids of parked jobs. Reads all of jobs_parked, and sorts.
select j.id from windlass_jobs j where j.parked is not null and {{page(+j.id)}}

-- name: size_of_key_prefix
-- Lists a row for each job whose key is from ?1 on and below ?2. Walks jobs_key for each kind.
select 1 from windlass_jobs j where j.kind in (select k.id from windlass_kinds k) and j.key >= ?1 and j.key < ?2

-- name: size_of_timers
-- Lists a row for each timer. Walks the primary key.
select 1 from windlass_timers t

-- fragment: matches
-- Whether a job is ?2 and matches a filter: parameters 3 to 13. `is_ready`, `is_scheduled` and `is_parked` are columns of the statement.
j.id = ?2
  and (?3 is null or j.state = ?3)
  and (?6 is null or instr(?6, ',' || j.lane || ','))
  and (?8 is null or j.key = ?8)
  and (?9 is null or substr(j.key, 1, length(?9)) = ?9)
  and (?10 is null or j.error_class = ?10)
  and (?11 is null or j.stage = ?11)
  and (not ?12 or j.parent is null)
  and (?7 is null or exists (select 1 from windlass_tags t where t.tag = ?7 and t.job = j.id))
  and (?4 is null or is_ready = ?4)
  and (?5 is null or is_scheduled = ?5)
  and (?13 is null or is_parked = ?13)

-- name: matching
-- Reads job ?2 if it matches a filter. ?1 is the span by which a job's priority moves its rank, ?6 the lanes, each between commas. Walks the
-- primary key.
select {{common.summary(?1)}} from windlass_jobs j where {{matches}}

-- name: state_if_matching
-- Reads what decides the state of job ?2 if it matches a filter: the column `state`, and where a live job is. Walks the primary key.
select j.state, case when j.state = 0 then coalesce(j.hold, 0) = 2 or {{common.in_ready(?1)}} or {{common.in_serial_waiting}} else 0 end as is_ready,
       case when j.state = 0 then {{common.in_timers}} else 0 end as is_scheduled, j.parked is not null as is_parked
from windlass_jobs j where {{matches}}
